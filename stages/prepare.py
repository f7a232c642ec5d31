import sys
from pathlib import Path
from trainparity import data, params
from trainparity.launch.stage import exit_code
def main() -> None:
    data.prepare(params.load(Path("params.yaml")).dataset, Path("data/prepared"), Path(".trainparity/downloads"))
if __name__ == "__main__":
    sys.exit(exit_code(main))

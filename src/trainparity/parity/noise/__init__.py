"""How far rounding alone takes right runs apart, by tensor and step: the noise floor."""

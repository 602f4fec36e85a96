# libyaml reads configuration files; without it runs are configured by flags only.
AC_DEFUN([TRM_FIND_YAML], [
TRM_OPTIONAL([LIBYAML], [yaml-0.1], [yaml], [yaml.h], [yaml_parser_initialize],
  [libyaml], [libyaml-dev])
])

/* A contact sheet of a data set's images. */
#pragma once

#include "datasets/datasets.h"

/* Writes the images with their labels to a file, as SVG, or as PNG (with librsvg) if `path` ends with .png. The file is
 * complete or absent, and encrypted if this process has a key. */
int data_sheet_write(const char *path, const struct trm_data_pictures *pictures);

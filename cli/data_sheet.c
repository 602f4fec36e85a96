#include "cli/data_sheet.h"

#include <stdlib.h>
#include <string.h>

#include "cli/markup.h"
#include "cli/report.h"
#include "core/atomic_file.h"
#include "core/status.h"

#define SIDE 80   /* of the square of an image */
#define GAP 8
#define LABEL 16  /* height of a line of text */
#define COLUMNS 10
#define LETTERS 13 /* of a label, at most */

static void sheet_base64(FILE *out, const unsigned char *bytes, size_t count)
{
  static const char digit[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  for (size_t i = 0; i < count; i += 3) {
    const size_t here = count - i < 3 ? count - i : 3;
    const unsigned group = (unsigned)bytes[i] << 16 | (here > 1 ? (unsigned)bytes[i + 1] << 8 : 0) |
                           (here > 2 ? bytes[i + 2] : 0u);
    for (size_t k = 0; k < 4; k++)
      fputc(k <= here ? digit[group >> (18 - 6 * k) & 63] : '=', out);
  }
}

/* Writes a label of at most LETTERS characters of UTF-8; the rest becomes an ellipsis. */
static void sheet_label(FILE *out, const char *label)
{
  char text[4 * LETTERS + 8] = "";
  size_t letters = 0, bytes = 0;
  for (; label[bytes] && bytes < 4 * LETTERS; bytes++) {
    letters += ((unsigned char)label[bytes] & 0xc0) != 0x80;
    if (letters > LETTERS)
      break;
    text[bytes] = label[bytes];
  }
  if (label[bytes])
    strcpy(text + bytes, "\xe2\x80\xa6");
  markup_text(out, text);
}

static int sheet_draw(FILE *out, const struct trm_data_pictures *pictures, int *width)
{
  const int count = (int)pictures->count; /* at least 1 */
  const int columns = count < COLUMNS ? count : COLUMNS;
  const int height = (count + columns - 1) / columns * (SIDE + LABEL + GAP) + GAP;
  *width = columns * (SIDE + GAP) + GAP;
  fprintf(out, "<svg xmlns=\"http://www.w3.org/2000/svg\" xmlns:xlink=\"http://www.w3.org/1999/xlink\" width=\"%d\" "
          "height=\"%d\" viewBox=\"0 0 %d %d\">\n<rect width=\"100%%\" height=\"100%%\" fill=\"#fff\"/>\n",
          *width, height, *width, height);
  for (int i = 0; i < count; i++) {
    const struct trm_data_picture *picture = &pictures->picture[i];
    const int x = GAP + i % columns * (SIDE + GAP), y = GAP + i / columns * (SIDE + LABEL + GAP);
    fprintf(out, "<image x=\"%d\" y=\"%d\" width=\"%d\" height=\"%d\" style=\"image-rendering:%s\" "
            "xlink:href=\"data:image/png;base64,", x, y, SIDE, SIDE,
            pictures->width < SIDE ? "pixelated" : "auto");
    sheet_base64(out, picture->png, picture->bytes);
    fprintf(out, "\"/>\n<text x=\"%d\" y=\"%d\" font-family=\"sans-serif\" font-size=\"11\" text-anchor=\"middle\">",
            x + SIDE / 2, y + SIDE + 12);
    sheet_label(out, picture->label);
    fprintf(out, "</text>\n");
  }
  fprintf(out, "</svg>\n");
  return height;
}

/* Makes the file's bytes, which the caller frees. */
static int sheet_make(bool png, const struct trm_data_pictures *pictures, char **made, size_t *bytes)
{
  int width = 0, height = 0;
  FILE *out = open_memstream(made, bytes);
  if (out)
    height = sheet_draw(out, pictures, &width);
  if (!out || ferror(out) | fclose(out))
    return trm_error(TRM_FAILED, "data head: no memory for the pictures");
  if (!png)
    return TRM_OK;
  return report_render(REPORT_PNG, made, bytes, width, height);
}

int data_sheet_write(const char *path, const struct trm_data_pictures *pictures)
{
  const char *end = strrchr(path, '.');
  const bool png = end && !strcmp(end, ".png");
  if (!png && (!end || strcmp(end, ".svg") != 0))
    return trm_error(TRM_USAGE, "--out=%s: must end with .svg or .png", path);
  char *made = NULL;
  size_t bytes = 0;
  struct atomic_file file;
  int status = sheet_make(png, pictures, &made, &bytes);
  if (status == TRM_OK)
    status = atomic_file_open_secret(&file, path);
  if (status == TRM_OK)
    status = atomic_file_close(&file, fwrite(made, 1, bytes, file.stream) == bytes);
  free(made);
  return status;
}

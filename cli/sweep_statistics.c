/* Means, standard deviations and the paired t-test. */
#include <math.h>

#include "cli/sweep.h"

struct sweep_sample sweep_sample_of(const double *value, int n)
{
  struct sweep_sample sample = {n, 0, NAN};
  double squares = 0;
  for (int i = 0; i < n; i++)
    sample.mean += value[i] / n;
  for (int i = 0; i < n; i++)
    squares += (value[i] - sample.mean) * (value[i] - sample.mean);
  if (n == 0)
    sample.mean = NAN;
  if (n > 1)
    sample.deviation = sqrt(squares / (n - 1));
  return sample;
}

/* The continued fraction of the incomplete beta function, by Lentz's method. It converges quickly for
 * x < (a + 1) / (a + b + 2). */
static double statistics_beta_fraction(double a, double b, double x)
{
  const double tiny = 1e-300;
  double c = 1, d = 1 - (a + b) * x / (a + 1);
  d = 1 / (fabs(d) < tiny ? tiny : d);
  double h = d;
  for (int m = 1; m <= 10000; m++) {
    const double even = m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m));
    const double odd = -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1));
    double factor = 1;
    for (int k = 0; k < 2; k++) {
      const double term = k == 0 ? even : odd;
      d = 1 + term * d;
      d = 1 / (fabs(d) < tiny ? tiny : d);
      c = 1 + term / c;
      c = fabs(c) < tiny ? tiny : c;
      factor = c * d;
      h *= factor;
    }
    if (fabs(factor - 1) < 1e-15)
      break;
  }
  return h;
}

/* The regularized incomplete beta function I_x(a, b). */
static double statistics_beta(double a, double b, double x)
{
  if (x <= 0 || x >= 1)
    return x <= 0 ? 0 : 1;
  const double front = exp(lgamma(a + b) - lgamma(a) - lgamma(b) + a * log(x) + b * log1p(-x));
  if (x < (a + 1) / (a + b + 2))
    return front * statistics_beta_fraction(a, b, x) / a;
  return 1 - front * statistics_beta_fraction(b, a, 1 - x) / b;
}

double sweep_t_probability(double t, double freedom)
{
  return isinf(t) ? 0 : statistics_beta(freedom / 2, 0.5, freedom / (freedom + t * t));
}

double sweep_paired_test(const struct sweep_sample *differences)
{
  if (differences->n < 2)
    return NAN;
  if (differences->deviation == 0)
    return differences->mean == 0 ? 1 : 0;
  return sweep_t_probability(differences->mean / (differences->deviation / sqrt(differences->n)), differences->n - 1);
}

#include "mpi/async/delayed_nesterov.h"

#include "core/status.h"

void delayed_nesterov_update(const struct trm_strategy *s, const struct delayed_nesterov *rule, int64_t push, size_t n,
                             size_t trained, float *restrict w, float *restrict m, float *restrict sum,
                             const float *restrict d)
{
  const bool moves_momentum = push % rule->period == 0;
  const double count = (double)rule->period, mu = rule->momentum, rate = rule->rate, c = rule->activation;
  const double step = rate * mu * (moves_momentum ? 1 - c * count + c : c);
  for (size_t i = 0; i < trained; i++) {
    const double g = -(double)d[i];
    sum[i] -= d[i];
    if (moves_momentum) {
      m[i] = (float)(mu * (double)m[i] + (double)sum[i] / count);
      sum[i] = 0;
    }
    w[i] = (float)((double)w[i] - g + ((1 - rate / count) * g - step * (double)m[i]));
  }
  for (size_t i = trained; i < n; i++)
    w[i] = (float)((double)w[i] + (double)d[i] / count);
  trm_strategy_pass_time(s, 7 * n);
}

int delayed_nesterov_check(const struct delayed_nesterov *rule)
{
  if (rule->activation * (double)rule->period <= 1)
    return TRM_OK;
  return trm_error(TRM_USAGE, "strategy.activation: %g is above 1 / %lld, one over the differences between two moves "
                   "of the momentum (strategy.collect)", rule->activation, (long long)rule->period);
}

/* The forced van der Pol oscillator with all derivatives, as C callbacks of tests/petsc/test_c_function.py. */
#include <math.h>

#define POINT double t, const double *u, const double *p
#define SLOPES (void)t; (void)u; (void)p; (void)data

void rhs(POINT, double *out, void *data)
{
    SLOPES;
    out[0] = u[1];
    out[1] = p[0] * (1.0 - u[0] * u[0]) * u[1] - u[0] + p[1] * t;
}
void jacobian(POINT, double *out, void *data)
{
    SLOPES;
    out[0] = 0.0;
    out[1] = 1.0;
    out[2] = -2.0 * p[0] * u[0] * u[1] - 1.0;
    out[3] = p[0] * (1.0 - u[0] * u[0]);
}
/* without the zero, and the second row from the right to the left */
void sparse_jacobian(POINT, double *out, void *data)
{
    SLOPES;
    out[0] = 1.0;
    out[1] = p[0] * (1.0 - u[0] * u[0]);
    out[2] = -2.0 * p[0] * u[0] * u[1] - 1.0;
}
void jacobian_p(POINT, double *out, void *data)
{
    SLOPES;
    out[0] = out[1] = 0.0;
    out[2] = (1.0 - u[0] * u[0]) * u[1];
    out[3] = t;
}
void rhs_t(POINT, double *out, void *data)
{
    SLOPES;
    out[0] = 0.0;
    out[1] = p[1];
}
void hessian_product(POINT, const double *w, const double *du, const double *dp, double *by_u,
                     double *by_p, void *data)
{
    SLOPES;
    double s = 1.0 - u[0] * u[0];
    by_u[0] = w[1] * (-2.0 * p[0] * (u[1] * du[0] + u[0] * du[1]) - 2.0 * u[0] * u[1] * dp[0]);
    by_u[1] = w[1] * (-2.0 * p[0] * u[0] * du[0] + s * dp[0]);
    by_p[0] = w[1] * (-2.0 * u[0] * u[1] * du[0] + s * du[1]);
    by_p[1] = 0.0;
}
double hessian_t(POINT, const double *w, double *by_u, double *by_p, void *data)
{
    SLOPES;
    by_u[0] = by_u[1] = by_p[0] = 0.0;
    by_p[1] = w[1];
    return 0.0;
}

/* udot - f */
void residual(double t, const double *u, const double *udot, const double *p, double *out,
              void *data)
{
    rhs(t, u, p, out, data);
    for (int i = 0; i < 2; i++) out[i] = udot[i] - out[i];
}
void residual_u(double t, const double *u, const double *udot, const double *p, double *out,
                void *data)
{
    (void)udot;
    jacobian(t, u, p, out, data);
    for (int i = 0; i < 4; i++) out[i] = -out[i];
}
void residual_udot(double t, const double *u, const double *udot, const double *p, double *out,
                   void *data)
{
    (void)udot;
    SLOPES;
    out[0] = out[3] = 1.0;
    out[1] = out[2] = 0.0;
}
void residual_p(double t, const double *u, const double *udot, const double *p, double *out,
                void *data)
{
    (void)udot;
    jacobian_p(t, u, p, out, data);
    for (int i = 0; i < 4; i++) out[i] = -out[i];
}
void residual_hessian(double t, const double *u, const double *udot, const double *p,
                      const double *w, const double *du, const double *dudot, const double *dp,
                      double *by_u, double *by_udot, double *by_p, void *data)
{
    (void)udot;
    (void)dudot;
    hessian_product(t, u, p, w, du, dp, by_u, by_p, data);
    for (int i = 0; i < 2; i++) {
        by_u[i] = -by_u[i];
        by_p[i] = -by_p[i];
        by_udot[i] = 0.0;
    }
}

/* a cost: u0^2/2 + p1 u1^2/2 + t u0 */
double cost(POINT, void *data)
{
    SLOPES;
    return 0.5 * (u[0] * u[0] + p[1] * u[1] * u[1]) + t * u[0];
}
void cost_u(POINT, double *out, void *data)
{
    SLOPES;
    out[0] = u[0] + t;
    out[1] = p[1] * u[1];
}
void cost_p(POINT, double *out, void *data)
{
    SLOPES;
    out[0] = 0.0;
    out[1] = 0.5 * u[1] * u[1];
}
double cost_t(POINT, void *data)
{
    SLOPES;
    return u[0];
}
void cost_hessian(POINT, const double *du, const double *dp, double *by_u, double *by_p, void *data)
{
    SLOPES;
    by_u[0] = du[0];
    by_u[1] = p[1] * du[1] + u[1] * dp[1];
    by_p[0] = 0.0;
    by_p[1] = u[1] * du[1];
}
double cost_hessian_t(POINT, double *by_u, double *by_p, void *data)
{
    SLOPES;
    by_u[0] = 1.0;
    by_u[1] = by_p[0] = by_p[1] = 0.0;
    return 0.0;
}

/* an event: u0 falls to p1; then u1 is multiplied by -p0 */
double when(POINT, void *data)
{
    SLOPES;
    return u[0] - p[1];
}
void when_u(POINT, double *out, void *data)
{
    SLOPES;
    out[0] = 1.0;
    out[1] = 0.0;
}
void when_p(POINT, double *out, void *data)
{
    SLOPES;
    out[0] = 0.0;
    out[1] = -1.0;
}
double when_t(POINT, void *data)
{
    SLOPES;
    return 0.0;
}
void nothing(POINT, const double *du, const double *dp, double *by_u, double *by_p, void *data)
{
    (void)du;
    (void)dp;
    SLOPES;
    by_u[0] = by_u[1] = by_p[0] = by_p[1] = 0.0;
}
void reset(POINT, double *out, void *data)
{
    SLOPES;
    out[0] = u[0];
    out[1] = -p[0] * u[1];
}
void reset_u(POINT, double *out, void *data)
{
    SLOPES;
    out[0] = 1.0;
    out[1] = out[2] = 0.0;
    out[3] = -p[0];
}
void reset_p(POINT, double *out, void *data)
{
    SLOPES;
    out[0] = out[1] = out[3] = 0.0;
    out[2] = -u[1];
}
void reset_hessian(POINT, const double *w, const double *du, const double *dp, double *by_u,
                   double *by_p, void *data)
{
    SLOPES;
    by_u[0] = by_p[1] = 0.0;
    by_u[1] = -w[1] * dp[0];
    by_p[0] = -w[1] * du[1];
}

/* not finite beyond t = 0.55 */
void failing(POINT, double *out, void *data)
{
    rhs(t, u, p, out, data);
    if (t > 0.55) out[1] = NAN;
}
void failing_jacobian(POINT, double *out, void *data)
{
    jacobian(t, u, p, out, data);
    if (t > 0.55) out[2] = NAN;
}
/* u' = -*data u */
void decay(POINT, double *out, void *data)
{
    (void)t;
    (void)p;
    out[0] = -*(double *)data * u[0];
}
/* u' = 0.9 u, which overflows; u0' = u0^2, which blows up */
void growth(POINT, double *out, void *data)
{
    SLOPES;
    for (int i = 0; i < 2; i++) out[i] = 0.9 * u[i];
}
void blow_up(POINT, double *out, void *data)
{
    SLOPES;
    out[0] = u[0] * u[0];
    out[1] = 0.0;
}

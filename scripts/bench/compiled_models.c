/* Models of compiled_steps.py with the arguments that callbacks in C have; matrices by rows. */

void oscillator(double t, const double *u, const double *p, double *out, void *data)
{
  out[0] = u[1];
  out[1] = p[0] * (1.0 - u[0] * u[0]) * u[1] - u[0];
}

void oscillator_u(double t, const double *u, const double *p, double *out, void *data)
{
  out[0] = 0.0;
  out[1] = 1.0;
  out[2] = -2.0 * p[0] * u[0] * u[1] - 1.0;
  out[3] = p[0] * (1.0 - u[0] * u[0]);
}

void oscillator_p(double t, const double *u, const double *p, double *out, void *data)
{
  out[0] = 0.0;
  out[1] = (1.0 - u[0] * u[0]) * u[1];
}

enum { SPECIES = 10 };

static double interaction(int i, int j)
{
  return i == j ? -1.0 : 0.1 / (1 + (i - j) * (i - j));
}

/* x_i' = x_i (r_i + sum_j A_ij x_j) */
void species(double t, const double *u, const double *p, double *out, void *data)
{
  for (int i = 0; i < SPECIES; i++) {
    double growth = p[i];
    for (int j = 0; j < SPECIES; j++) growth += interaction(i, j) * u[j];
    out[i] = u[i] * growth;
  }
}

void species_u(double t, const double *u, const double *p, double *out, void *data)
{
  for (int i = 0; i < SPECIES; i++) {
    double growth = p[i];
    for (int j = 0; j < SPECIES; j++) {
      growth += interaction(i, j) * u[j];
      out[SPECIES * i + j] = u[i] * interaction(i, j);
    }
    out[SPECIES * i + i] += growth;
  }
}

void species_p(double t, const double *u, const double *p, double *out, void *data)
{
  for (int i = 0; i < SPECIES; i++)
    for (int j = 0; j < SPECIES; j++) out[SPECIES * i + j] = i == j ? u[i] : 0.0;
}

double first(double t, const double *u, const double *p, void *data)
{
  return u[0];
}

void first_of_two(double t, const double *u, const double *p, double *out, void *data)
{
  out[0] = 1.0;
  out[1] = 0.0;
}

void first_of_ten(double t, const double *u, const double *p, double *out, void *data)
{
  for (int i = 0; i < SPECIES; i++) out[i] = i == 0;
}

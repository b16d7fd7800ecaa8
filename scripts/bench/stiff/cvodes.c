/* CVODES by its own C interface: BDF with a dense matrix (Adams with fixed points where not stiff),
   forward sensitivities of all parameters at once, the adjoint of the first unknown with checkpoints.

   The equations come from another library, compiled from what CasADi writes: each of its functions
   takes the arrays of its arguments and of its results.  Parameters are factors of their values.
   The objects of CVODES are made once and started again for each run. */

#include <cvodes/cvodes.h>
#include <nvector/nvector_serial.h>
#include <stdlib.h>
#include <string.h>
#include <sunlinsol/sunlinsol_dense.h>
#include <sunmatrix/sunmatrix_dense.h>
#include <sunnonlinsol/sunnonlinsol_fixedpoint.h>

typedef int (*Generated)(const double **, double **, long long *, double *, int);

typedef struct {
  int n, m, stiff;
  Generated rhs, jacobian, by_factors, pulled_state, pulled_factors;
  const double *start, *factors;
  double end, rtol, atol;
  long long *integers;
  double *work, *matrix, *columns;
  SUNContext context;
  void *cvode, *swept;
  int backward;
  N_Vector u, *s, adjoint, quadrature;
  SUNMatrix newton, newton_back;
  SUNLinearSolver linear, linear_back;
  SUNNonlinearSolver fixed, fixed_sensitivities, fixed_swept, fixed_back;
} Program;

#define DATA(vector) N_VGetArrayPointer_Serial(vector)
#define CHECK(call) do { int code = (call); if (code < 0) return code; } while (0)

static int evaluate(Program *it, Generated function, const double *u, const double *seed, double *out)
{
  const double *arguments[3] = {u, it->factors, seed};
  double *results[1] = {out};
  return function(arguments, results, it->integers, it->work, 0);
}

static int rhs(double t, N_Vector u, N_Vector out, void *it)
{
  return evaluate(it, ((Program *)it)->rhs, DATA(u), NULL, DATA(out));
}

static int jacobian(double t, N_Vector u, N_Vector f, SUNMatrix out, void *it, N_Vector a, N_Vector b,
                    N_Vector c)
{
  return evaluate(it, ((Program *)it)->jacobian, DATA(u), NULL, SUNDenseMatrix_Data(out));
}

static int sensitivities(int m, double t, N_Vector u, N_Vector f, N_Vector *s, N_Vector *out, void *with,
                         N_Vector a, N_Vector b)
{
  Program *it = with;
  const int n = it->n;
  evaluate(it, it->jacobian, DATA(u), NULL, it->matrix);
  evaluate(it, it->by_factors, DATA(u), NULL, it->columns);
  for (int k = 0; k < m; k++) {
    double *restrict to = DATA(out[k]);
    const double *restrict from = DATA(s[k]);
    memcpy(to, it->columns + (size_t)k * n, n * sizeof(double));
    for (int j = 0; j < n; j++) {
      const double value = from[j], *restrict column = it->matrix + (size_t)j * n;
      for (int i = 0; i < n; i++) to[i] += column[i] * value;
    }
  }
  return 0;
}

static int back(double t, N_Vector u, N_Vector adjoint, N_Vector out, void *it)
{
  int code = evaluate(it, ((Program *)it)->pulled_state, DATA(u), DATA(adjoint), DATA(out));
  N_VScale(-1.0, out, out);
  return code;
}

static int back_jacobian(double t, N_Vector u, N_Vector adjoint, N_Vector f, SUNMatrix out, void *with,
                         N_Vector a, N_Vector b, N_Vector c)
{
  Program *it = with;
  const int n = it->n;
  double *to = SUNDenseMatrix_Data(out);
  int code = evaluate(it, it->jacobian, DATA(u), NULL, it->matrix);
  for (int j = 0; j < n; j++)
    for (int i = 0; i < n; i++) to[(size_t)j * n + i] = -it->matrix[(size_t)i * n + j];
  return code;
}

static int back_quadrature(double t, N_Vector u, N_Vector adjoint, N_Vector out, void *it)
{
  int code = evaluate(it, ((Program *)it)->pulled_factors, DATA(u), DATA(adjoint), DATA(out));
  N_VScale(-1.0, out, out);
  return code;
}

static int begin(Program *it, void **cvode, SUNNonlinearSolver *fixed)
{
  *cvode = CVodeCreate(it->stiff ? CV_BDF : CV_ADAMS, it->context);
  memcpy(DATA(it->u), it->start, it->n * sizeof(double));
  CHECK(CVodeInit(*cvode, rhs, 0.0, it->u));
  CHECK(CVodeSStolerances(*cvode, it->rtol, it->atol));
  CHECK(CVodeSetUserData(*cvode, it));
  CHECK(CVodeSetMaxNumSteps(*cvode, 1000000));
  if (it->stiff) {
    CHECK(CVodeSetLinearSolver(*cvode, it->linear, it->newton));
    return CVodeSetJacFn(*cvode, jacobian);
  }
  *fixed = SUNNonlinSol_FixedPoint(it->u, 0, it->context);
  return CVodeSetNonlinearSolver(*cvode, *fixed);
}

int create(int n, int m, int stiff, Generated *functions, long long integers, long long work,
           const double *start, const double *factors, double end, double rtol, double atol, void **out)
{
  Program *it = calloc(1, sizeof *it);
  *it = (Program){.n = n, .m = m, .stiff = stiff, .rhs = functions[0], .jacobian = functions[1],
                  .by_factors = functions[2], .pulled_state = functions[3],
                  .pulled_factors = functions[4], .start = start, .factors = factors, .end = end,
                  .rtol = rtol, .atol = atol};
  it->integers = malloc((integers + 1) * sizeof(long long));
  it->work = malloc((work + 1) * sizeof(double));
  it->matrix = malloc((size_t)n * n * sizeof(double));
  it->columns = malloc((size_t)n * m * sizeof(double));
  CHECK(SUNContext_Create(NULL, &it->context));
  it->u = N_VNew_Serial(n, it->context);
  it->adjoint = N_VNew_Serial(n, it->context);
  it->quadrature = N_VNew_Serial(m, it->context);
  it->s = N_VCloneVectorArray(m, it->u);
  for (int k = 0; k < m; k++) N_VConst(0.0, it->s[k]);
  N_VConst(0.0, it->adjoint);
  N_VConst(0.0, it->quadrature);
  it->newton = SUNDenseMatrix(n, n, it->context);
  it->newton_back = SUNDenseMatrix(n, n, it->context);
  it->linear = SUNLinSol_Dense(it->u, it->newton, it->context);
  it->linear_back = SUNLinSol_Dense(it->u, it->newton_back, it->context);
  CHECK(begin(it, &it->cvode, &it->fixed));
  CHECK(CVodeSensInit(it->cvode, m, CV_STAGGERED, sensitivities, it->s));
  CHECK(CVodeSensEEtolerances(it->cvode));
  CHECK(CVodeSetSensErrCon(it->cvode, 1));
  if (!stiff) {
    it->fixed_sensitivities = SUNNonlinSol_FixedPointSens(m, it->u, 0, it->context);
    CHECK(CVodeSetNonlinearSolverSensStg(it->cvode, it->fixed_sensitivities));
  }
  *out = it;
  return 0;
}

/* the derivatives of all unknowns, one column [n] for each parameter */
int forward(void *with, double *out)
{
  Program *it = with;
  double t;
  memcpy(DATA(it->u), it->start, it->n * sizeof(double));
  for (int k = 0; k < it->m; k++) N_VConst(0.0, it->s[k]);
  CHECK(CVodeReInit(it->cvode, 0.0, it->u));
  CHECK(CVodeSensReInit(it->cvode, CV_STAGGERED, it->s));
  CHECK(CVode(it->cvode, it->end, it->u, &t, CV_NORMAL));
  CHECK(CVodeGetSens(it->cvode, &t, it->s));
  for (int k = 0; k < it->m; k++)
    memcpy(out + (size_t)k * it->n, DATA(it->s[k]), it->n * sizeof(double));
  return 0;
}

/* the derivatives [m] of the first unknown */
int gradient(void *with, double *out)
{
  Program *it = with;
  double t;
  int points;
  const int anew = it->swept == NULL;
  if (anew) {
    CHECK(begin(it, &it->swept, &it->fixed_swept));
    CHECK(CVodeAdjInit(it->swept, 500, CV_HERMITE));
  } else {
    memcpy(DATA(it->u), it->start, it->n * sizeof(double));
    CHECK(CVodeReInit(it->swept, 0.0, it->u));
    CHECK(CVodeAdjReInit(it->swept));
  }
  CHECK(CVodeF(it->swept, it->end, it->u, &t, CV_NORMAL, &points));
  N_VConst(0.0, it->adjoint);
  DATA(it->adjoint)[0] = 1.0;
  N_VConst(0.0, it->quadrature);
  if (anew) {
    CHECK(CVodeCreateB(it->swept, it->stiff ? CV_BDF : CV_ADAMS, &it->backward));
    CHECK(CVodeInitB(it->swept, it->backward, back, it->end, it->adjoint));
    /* relative to the adjoint, which is of the size of 1 over that of a state */
    CHECK(CVodeSStolerancesB(it->swept, it->backward, it->rtol, it->rtol));
    CHECK(CVodeSetUserDataB(it->swept, it->backward, it));
    CHECK(CVodeSetMaxNumStepsB(it->swept, it->backward, 1000000));
    if (it->stiff) {
      CHECK(CVodeSetLinearSolverB(it->swept, it->backward, it->linear_back, it->newton_back));
      CHECK(CVodeSetJacFnB(it->swept, it->backward, back_jacobian));
    } else {
      it->fixed_back = SUNNonlinSol_FixedPoint(it->u, 0, it->context);
      CHECK(CVodeSetNonlinearSolverB(it->swept, it->backward, it->fixed_back));
    }
    CHECK(CVodeQuadInitB(it->swept, it->backward, back_quadrature, it->quadrature));
    CHECK(CVodeQuadSStolerancesB(it->swept, it->backward, it->rtol, it->rtol));
    CHECK(CVodeSetQuadErrConB(it->swept, it->backward, 1));
  } else {
    CHECK(CVodeReInitB(it->swept, it->backward, it->end, it->adjoint));
    CHECK(CVodeQuadReInitB(it->swept, it->backward, it->quadrature));
  }
  CHECK(CVodeB(it->swept, 0.0, CV_NORMAL));
  CHECK(CVodeGetQuadB(it->swept, it->backward, &t, it->quadrature));
  memcpy(out, DATA(it->quadrature), it->m * sizeof(double));
  return 0;
}

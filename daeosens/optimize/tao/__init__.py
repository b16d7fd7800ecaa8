"""PETSc TAO: its set-up, a run of it, Newton's and Gauss-Newton's pieces."""

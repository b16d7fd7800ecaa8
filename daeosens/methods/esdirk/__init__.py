"""ESDIRK methods: own tableaux, stage equations, the step's derivatives."""

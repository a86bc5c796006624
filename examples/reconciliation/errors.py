"""What can end a reconciliation, each with an exit code of its own.

Every message names the object, the cause and the next step. Nothing here may hold a password or a snapshot token.
"""


class ReconciliationError(Exception):
    """The reconciliation cannot go on."""

    exit_code = 1


class CorrectionsUndone(ReconciliationError):
    """Verification found rows that were corrected and are again exactly what they were before."""

    exit_code = 1


class BadLake(ReconciliationError):
    """A lake file cannot be read, or does not hold what the live table holds. Nothing was written."""

    exit_code = 2


class BadTarget(ReconciliationError):
    """The live table does not exist, has no columnar replica, or is otherwise not what is needed."""

    exit_code = 2


class LeaseLost(ReconciliationError):
    """The snapshot that the plan rests on is no longer held. Nothing is written from here on."""

    exit_code = 3


class AlreadyRunning(ReconciliationError):
    """Another reconciliation holds one of the tables."""

    exit_code = 4


class TargetGone(ReconciliationError):
    """The live database did not answer for as long as the job may wait. The run can be started again."""

    exit_code = 5


class SparkFailed(ReconciliationError):
    """Spark gave up the comparison. The run can be started again."""

    exit_code = 6


class TooManyDifferences(ReconciliationError):
    """More rows differ than the job may correct: more likely the wrong file than a bad night. Nothing was written."""

    exit_code = 7

"""MLflow's tracking and registry over a database: its own migrations, then runs, metrics and models."""

from mlflow.entities import Metric, Param, RunTag, ViewType
from mlflow.store.model_registry.sqlalchemy_store import SqlAlchemyStore as Registry
from mlflow.store.tracking.sqlalchemy_store import SqlAlchemyStore as Tracking

from steps import DATABASE, HOST, PORT, after_restart, run, step

URL = f"mysql+pymysql://root@{HOST}:{PORT}/{DATABASE}"
_kept: dict = {}


def tracking() -> Tracking:
    if "tracking" not in _kept:
        _kept["tracking"] = Tracking(URL, "/tmp/isobar-mlflow")
    return _kept["tracking"]


def registry() -> Registry:
    if "registry" not in _kept:
        _kept["registry"] = Registry(URL)
    return _kept["registry"]


def runs(view=ViewType.ACTIVE_ONLY, query: str = ""):
    experiment = tracking().get_experiment_by_name("one")
    return tracking().search_runs([experiment.experiment_id], query, view, 50, ["attributes.run_name ASC"])


@step
def migrates():
    return tracking().get_experiment("0").name


@step
def makes_experiments():
    return [tracking().create_experiment(name) for name in ("one", "two")]


@step
def logs_runs():
    experiment = tracking().get_experiment_by_name("one").experiment_id
    for n in range(5):
        made = tracking().create_run(experiment, "ann", n, [RunTag("kind", "odd" if n % 2 else "even")], f"run {n}")
        metrics = [Metric("loss", 1 / (step + n + 1), step, step) for step in range(10)]
        tracking().log_batch(made.info.run_id, metrics, [Param("rate", str(n))], [RunTag("note", "x" * n)])
    return len(runs())


@step
def finds_runs_by_metric():
    return [one.info.run_name for one in runs(query="metrics.loss < 0.08")]


@step
def finds_runs_by_param_and_tag():
    return [one.info.run_name for one in runs(query="params.rate = '3' and tags.kind = 'odd'")]


@step
def finds_runs_without_case():
    return [one.info.run_name for one in runs(query="attributes.run_name ILIKE 'RUN 2'")]


@step
def reads_a_history():
    first = runs()[0].info.run_id
    return [round(metric.value, 6) for metric in tracking().get_metric_history(first, "loss")]


@step
def refuses_a_second_experiment_of_a_name():
    try:
        tracking().create_experiment("one")
        return "made"
    except Exception as error:  # noqa: BLE001
        return type(error).__name__


@step
def deletes_and_restores_a_run():
    first = runs()[0].info.run_id
    tracking().delete_run(first)
    away = len(runs())
    tracking().restore_run(first)
    return [away, len(runs())]


@step
def registers_models():
    registry().create_registered_model("classifier")
    for _ in range(3):
        registry().create_model_version("classifier", "/tmp/source")
    registry().set_registered_model_alias("classifier", "best", "2")
    registry().transition_model_version_stage("classifier", "3", "Production", False)
    return [one.version for one in registry().search_model_versions("name = 'classifier'")]


@step
def renames_a_model():
    registry().rename_registered_model("classifier", "judge")
    return registry().get_model_version_by_alias("judge", "best").version


@after_restart
def finds_everything_again():
    return [len(runs()), len(registry().search_registered_models("", 10))]


@after_restart
def deletes_a_model():
    registry().delete_registered_model("judge")
    return len(registry().search_registered_models("", 10))


@after_restart
def deletes_an_experiment():
    tracking().delete_experiment(tracking().get_experiment_by_name("two").experiment_id)
    return len(tracking().search_experiments())


run()

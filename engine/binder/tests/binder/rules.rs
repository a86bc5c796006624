//! What rules do to plans, as scripts: `plan "SELECT …"`, and below it what the query is bound to, how it is lowered, and
//! what each rule makes of that; `optimize` and `physical` show the plans behind DataFusion's rules, with ours among them and
//! without (`beside=` names one of ours that it has all the same); `stored` and
//! `distributed` what is made of the plan of a query that is written to a table, or that several nodes run. Every rule has a
//! script of its name in `tests/rules`. `UPDATE_GOLDENFILES=1` writes the results anew.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::error::Error;
use std::fmt::Write as _;
use std::io;
use std::path::{Path, PathBuf};

use binder::rules::{self, RuleInfo, Stage};
use binder::{QueryContext, bind, plan_query, query_of, session_state_builder};
use datafusion::execution::SessionStateBuilder;
use datafusion::execution::session_state::SessionState;
use datafusion::logical_expr::LogicalPlan;
use datafusion::optimizer::Optimizer;
use datafusion::physical_optimizer::optimizer::PhysicalOptimizer;
use datafusion::physical_plan::displayable;
use datafusion::prelude::SessionConfig;
use goldenscript::{Command, Context, Runner};
use tokio::runtime::Runtime;

use crate::tables::Tables;

thread_local! {
    /// What was logged by the thread.
    static LOG: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

/// Where logs go. One subscriber for the process: what one of a thread alone gets depends on what others log meanwhile.
struct Log;

impl io::Write for Log {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        LOG.with_borrow_mut(|log| log.extend_from_slice(bytes));
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// What stands above a plan that no rule of ours has changed, if one has.
const ALONE: &str = "DataFusion alone";

/// Rules that change plans of other tables than those here; scripts of the session fail without them.
const ELSEWHERE: [&str; 2] = ["filters_apart", "proven_orders"];

struct Rules(Runtime);

impl Runner for Rules {
    type Command = Command;

    fn run(&mut self, command: &Command, _: &Context) -> Result<String, Box<dyn Error>> {
        let mut args = command.consume_args();
        let text = args.next_pos().ok_or("a query is missing")?.to_owned();
        let zone: String = args.take_key("zone").unwrap_or("+00:00").into();
        let beside = args.take_key("beside").map(str::to_owned);
        args.reject_next()?;
        let context = QueryContext { time_zone: zone, ..crate::bound::context() };
        let (bound, _) = self.0.block_on(bind(&query_of(&text)?, &context, &Tables))?;
        LOG.take();
        let behind = behind(&command.name, &text, &context, beside.as_deref());
        let behind = self.0.block_on(behind)?;
        Ok(format!("bound\n{bound}{}{behind}", String::from_utf8_lossy(&LOG.take())))
    }
}

/// What becomes of a query's plan behind the rules that are logged.
async fn behind(
    command: &str,
    text: &str,
    context: &QueryContext,
    beside: Option<&str>,
) -> Result<String, Box<dyn Error>> {
    let state = builder().build();
    let plan = plan_query(&query_of(text)?, context, &state, &Tables).await?.plan;
    Ok(match command {
        "plan" => String::new(),
        "stored" => rules::stored(plan).map(|_| String::new())?,
        "distributed" => rules::distributed(plan).map(|_| String::new())?,
        "optimize" | "physical" => {
            let mut physical = PhysicalOptimizer::new().rules;
            let ours = state.physical_optimizers().iter();
            physical.extend(ours.filter(|rule| beside == Some(rule.name())).cloned());
            let theirs = builder()
                .with_optimizer_rules(Optimizer::new().rules)
                .with_physical_optimizer_rules(physical)
                .build();
            let theirs = finished(command, &theirs, &plan).await;
            let ours = finished(command, &state, &plan).await;
            match ours == theirs {
                true => format!("as by DataFusion alone\n{ours}"),
                false => format!("{ALONE}\n{theirs}with these rules\n{ours}"),
            }
        }
        other => return Err(format!("no command '{other}'").into()),
    })
}

/// A state that is the same on any machine.
fn builder() -> SessionStateBuilder {
    session_state_builder(SessionConfig::new().with_target_partitions(2))
}

/// A plan behind the rules of a state, as text.
async fn finished(command: &str, state: &SessionState, plan: &LogicalPlan) -> String {
    let text = match command {
        "optimize" => state.optimize(plan).map(|plan| format!("{}\n", plan.display_indent())),
        _ => state
            .create_physical_plan(plan)
            .await
            .map(|plan| displayable(plan.as_ref()).indent(false).to_string()),
    };
    text.unwrap_or_else(|error| {
        let error = error.to_string();
        format!("refused: {}\n", error.lines().next().unwrap_or_default())
    })
}

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/rules")
}

#[test]
fn rules_make_these_plans() {
    let logs = tracing_subscriber::fmt()
        .with_max_level(tracing::Level::TRACE)
        .with_writer(|| Log)
        .without_time()
        .with_level(false)
        .with_target(false)
        .with_ansi(false)
        .finish();
    tracing::subscriber::set_global_default(logs).unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let mut runner = Rules(runtime);
    for rule in rules::all() {
        println!("{}", rule.name);
        goldenscript::run(&mut runner, folder().join(rule.name)).unwrap();
    }
}

#[test]
fn every_rule_shows_what_it_does() {
    let names: BTreeSet<String> = rules::all().iter().map(|rule| rule.name.into()).collect();
    let scripts = std::fs::read_dir(folder()).unwrap();
    let scripts: BTreeSet<String> =
        scripts.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    assert_eq!(scripts, names);
    for rule in rules::all() {
        let script = std::fs::read_to_string(folder().join(rule.name)).unwrap();
        let shown = match rule.stage {
            Stage::Optimizer | Stage::Physical => ALONE,
            _ => rule.name,
        };
        let shows = |line: &str| {
            line.strip_prefix(shown).is_some_and(|rest| rest.is_empty() || rest.starts_with(':'))
        };
        let (name, elsewhere) = (rule.name, ELSEWHERE.contains(&rule.name));
        let is_shown = script.lines().any(shows);
        assert!(is_shown != elsewhere, "{name}: no query that it changes, or one after all");
    }
}

#[test]
fn rules_run_behind_those_that_they_need() {
    let all = rules::all();
    for (at, rule) in all.iter().enumerate() {
        for needed in rule.after {
            let found = all.iter().position(|other| other.name == *needed);
            let found = found.unwrap_or_else(|| panic!("{}: no rule {needed}", rule.name));
            // What rules of expressions and nodes need runs in another pass, if it is not of their list.
            assert!(found < at, "{} runs before {needed}", rule.name);
        }
    }
    let names: BTreeSet<&str> = all.iter().map(|rule| rule.name).collect();
    assert_eq!(names.len(), all.len(), "two rules have one name");
}

#[test]
fn datafusion_has_the_rules_that_ours_are_put_around() {
    let logical = Optimizer::new().rules;
    let physical = PhysicalOptimizer::new().rules;
    let theirs: BTreeSet<&str> = logical
        .iter()
        .map(|rule| rule.name())
        .chain(physical.iter().map(|rule| rule.name()))
        .collect();
    for rule in rules::all() {
        for name in rule.theirs {
            assert!(theirs.contains(name), "{}: DataFusion has no rule {name}", rule.name);
        }
    }
}

#[test]
fn rules_are_listed() {
    let path =
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/architecture/planner-rules.md");
    if std::env::var_os("UPDATE_DOCS").is_some() {
        std::fs::write(&path, page()).unwrap();
    }
    let listed = std::fs::read_to_string(&path).unwrap_or_default();
    assert_eq!(listed, page(), "write {} anew: UPDATE_DOCS=1", path.display());
}

fn page() -> String {
    let mut page = String::from(
        "# Rules of the planner\n\nWhat makes the plan of a bound query one with MySQL's meaning, in the order in which it \
         runs. Each rule has a script of its\nname in `engine/binder/tests/rules`: a query, what it is bound to, how that \
         is lowered, and what the rule makes of it.\n`ISOBAR_LOG=binder=trace` logs the same of a running node. This page is \
         made of the lists in `binder::rules`.\n",
    );
    let mut stage = None;
    for rule in rules::all() {
        if stage != Some(rule.stage) {
            stage = Some(rule.stage);
            let title = title(rule.stage);
            _ = write!(page, "\n## {title}\n\n| rule | why | behind |\n|---|---|---|\n");
        }
        let RuleInfo { name, why, after, theirs, .. } = rule;
        let mut needs: Vec<String> = after.iter().map(|name| format!("`{name}`")).collect();
        let around = theirs.iter().map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", ");
        if !around.is_empty() {
            needs.push(format!("at DataFusion's {around}"));
        }
        _ = writeln!(page, "| `{name}` | {why} | {} |", needs.join(", "));
    }
    page
}

fn title(stage: Stage) -> &'static str {
    match stage {
        Stage::Query => "The plan of a query",
        Stage::Union => "UNIONs, within `operand_types`",
        Stage::Expression => "Expressions, from their leaves up, within `operand_types`",
        Stage::Node => "Nodes whose expressions are done, within `operand_types`",
        Stage::Stored => "The plan of what is written to a table",
        Stage::Distributed => "A plan that several nodes run",
        Stage::Optimizer => "Among DataFusion's rules of logical plans",
        Stage::Physical => "Among DataFusion's rules of physical plans",
    }
}

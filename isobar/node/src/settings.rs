//! A node's settings while it runs: what its file says, until SET CONFIG says otherwise for it or for its kind.
//!
//! What is set stands in the catalog, so that it outlives the node; without placement the last that was known stays.

use std::collections::BTreeMap;
use std::time::Duration;

use placement::api::Catalog;
use placement::client::PlacementClient;
use tokio::time::{sleep, timeout};
use types::setting::{SETTINGS, Setting};
use types::{ClusterVersion, NodeId, version};

use crate::config::Config;

/// How often the catalog is looked at.
const LOOK: Duration = Duration::from_secs(1);
/// How long placement has for an answer.
const ANSWER: Duration = Duration::from_secs(2);
/// After how many looks placement's leader is given them again: it may be another one.
const REPORTED_EVERY: u32 = 5;

/// Acts by a value from now on.
type Turn = Box<dyn Fn(&str) + Send + Sync>;

/// The settings of a node.
pub(crate) struct NodeSettings {
    kinds: Vec<&'static str>,
    /// As the file has them, or as they are without one.
    own: BTreeMap<String, String>,
    /// By which the node goes.
    now: BTreeMap<String, String>,
    turns: BTreeMap<&'static str, Turn>,
}

impl NodeSettings {
    /// Those of a file.
    pub(crate) fn new(config: &Config, log: &str) -> Self {
        let mut kinds = vec![config.role.name()];
        if config.mysql_address.is_some() && !kinds.contains(&"sql") {
            kinds.push("sql");
        }
        let mut own = config.shown();
        own.insert("log_level".into(), log.to_owned());
        NodeSettings { kinds, now: own.clone(), own, turns: BTreeMap::new() }
    }

    /// Has a setting that counts at once turned by this.
    pub(crate) fn turn_by(
        &mut self,
        name: &'static str,
        turn: impl Fn(&str) + Send + Sync + 'static,
    ) {
        self.turns.insert(name, Box::new(turn));
    }

    fn has(&self, setting: &Setting) -> bool {
        self.kinds.iter().any(|kind| setting.kinds.contains(kind))
    }

    /// What a setting is to be.
    fn wanted(&self, setting: &Setting, node: NodeId, catalog: &Catalog) -> Option<String> {
        let kinds = self.kinds.iter().map(|kind| (*kind).to_owned());
        let mut whose = std::iter::once(node.to_string()).chain(kinds);
        let set = whose.find_map(|whose| catalog.globals.get(&setting.key(&whose)));
        // What a later program has allowed may mean nothing to this one.
        let set = set.and_then(|text| setting.value(text).ok());
        set.or_else(|| self.own.get(setting.name).cloned())
    }

    /// What counts from the node's start on, as far as placement says so in time.
    pub(crate) async fn begin(&mut self, node: NodeId, placement: &PlacementClient) {
        let Ok(Ok(_)) = timeout(ANSWER, placement.timestamp()).await else { return };
        if let Ok(Ok(catalog)) = timeout(ANSWER, placement.catalog()).await {
            self.follow(node, &catalog, |_| true);
        }
    }

    /// A number among them.
    pub(crate) fn number(&self, name: &str) -> Option<usize> {
        self.now.get(name)?.parse().ok()
    }

    /// Whether anything has changed.
    fn follow(
        &mut self,
        node: NodeId,
        catalog: &Catalog,
        counts: impl Fn(&Setting) -> bool,
    ) -> bool {
        let mut changed = false;
        for setting in SETTINGS.iter().filter(|setting| counts(setting)) {
            if !self.has(setting) {
                continue;
            }
            let Some(wanted) = self.wanted(setting, node, catalog) else { continue };
            if self.now.get(setting.name) == Some(&wanted) {
                continue;
            }
            tracing::info!(setting = setting.name, value = wanted, "a setting is changed");
            if let Some(turn) = self.turns.get(setting.name) {
                turn(&wanted);
            }
            self.now.insert(setting.name.to_owned(), wanted);
            changed = true;
        }
        changed
    }

    /// Goes by what is set from now on, and reports it to placement.
    pub(crate) async fn keep(
        mut self,
        node: NodeId,
        placement: PlacementClient,
        cluster: impl Fn() -> ClusterVersion,
    ) {
        let mut looks = 0;
        loop {
            sleep(LOOK).await;
            let mut changed = false;
            if let Ok(Ok(catalog)) = timeout(ANSWER, placement.catalog()).await {
                changed = self.follow(node, &catalog, |setting| setting.at_once);
            }
            // An older leader of placement would not know such a report.
            if (changed || looks % REPORTED_EVERY == 0) && cluster() >= version::QUERY_WATCHES {
                let all = self.now.clone().into_iter().collect();
                let reported = timeout(ANSWER, placement.note_settings(node, all)).await;
                if !matches!(reported, Ok(Ok(()))) {
                    tracing::debug!("placement has not taken this node's settings");
                }
            }
            looks = looks.wrapping_add(1);
        }
    }
}

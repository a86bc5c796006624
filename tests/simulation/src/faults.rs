//! What goes wrong, and the order in which a seed lets it: one fault every second or so, each with its end.
//!
//! Nothing here knows what must hold; a fault may come in any state of the system, and which those were is counted.

mod hosts;
mod links;
mod regions;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use env::Random;
use tokio::time::sleep;

use crate::network::Host;
use crate::run::Span;
use crate::world::World;

/// Every fault by name, and how often it is chosen beside the others.
pub const FAULTS: [(&str, u64); 25] = [
    ("kill-rows", 10),
    ("kill-columns", 6),
    ("kill-client", 4),
    ("kill-all", 1),
    ("power-at-sync", 8),
    ("power-at-write", 8),
    ("isolate", 6),
    ("one-way", 6),
    ("halves", 4),
    ("rows-apart", 6),
    ("loss", 5),
    ("delay", 5),
    ("repeat", 5),
    ("hang", 6),
    ("slow-disk", 4),
    ("full-disk", 4),
    ("failing-disk", 3),
    ("clock", 4),
    ("transfer", 8),
    ("membership", 6),
    ("split", 5),
    ("schema", 4),
    ("replica", 6),
    ("empty-columns", 3),
    ("empty-rows", 4),
];

/// Longest time between two faults, in milliseconds.
const PAUSE_MS: u64 = 2_400;

/// Who brings faults.
pub(crate) struct Nemesis {
    pub world: Arc<World>,
    pub random: Random,
    pub enabled: BTreeSet<String>,
    /// The row node whose clock is set.
    pub odd: Host,
    pub span: Span,
}

impl Nemesis {
    pub(crate) async fn run(self) {
        let weights: Vec<(&'static str, u64)> =
            FAULTS.into_iter().filter(|(name, _)| self.enabled.contains(*name)).collect();
        let all: u64 = weights.iter().map(|(_, weight)| weight).sum();
        if all == 0 {
            return;
        }
        while self.span.goes_on(&self.world) {
            sleep(Duration::from_millis(100 + self.random.below(PAUSE_MS))).await;
            let mut draw = self.random.below(all);
            let chosen = weights.iter().find(|(_, weight)| match draw.checked_sub(*weight) {
                Some(left) => {
                    draw = left;
                    false
                }
                None => true,
            });
            let Some((name, _)) = chosen else { continue };
            let state = self.world.state();
            if self.bring(name).await {
                self.world.history.fault(name, state);
            }
        }
    }

    /// Whether there was anything for the fault to meet.
    async fn bring(&self, name: &str) -> bool {
        match name {
            "kill-rows" | "kill-columns" | "kill-client" | "kill-all" | "power-at-sync"
            | "power-at-write" | "hang" | "slow-disk" | "full-disk" | "failing-disk" | "clock"
            | "empty-columns" | "empty-rows" => self.meet_host(name),
            "isolate" | "one-way" | "halves" | "rows-apart" | "loss" | "delay" | "repeat" => {
                self.meet_links(name)
            }
            _ => self.meet_region(name).await,
        }
    }

    fn pick<T: Copy>(&self, of: &[T]) -> Option<T> {
        of.get(self.random.below(of.len() as u64) as usize).copied()
    }

    /// A length of time up to so many milliseconds, and at least a hundredth of that.
    fn up_to(&self, millis: u64) -> Duration {
        Duration::from_millis(millis / 100 + self.random.below(millis))
    }
}

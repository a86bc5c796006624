//! What the groups use while they run: asked of the cluster again and again, since what it knows is a second old.

use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use mysql_async::prelude::Queryable;
use tokio::task::JoinHandle;

use super::GROUPS;
use crate::target::Target;

/// Pause between two looks.
const PAUSE: Duration = Duration::from_millis(100);

/// What a group has used: seconds since the measured part began, and units in all.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Used {
    /// Each time that it was more than before.
    pub points: Vec<[f64; 2]>,
}

impl Used {
    fn note(&mut self, at: f64, units: f64) {
        if self.points.last().is_none_or(|[_, known]| *known != units) {
            self.points.push([at, units]);
        }
    }

    /// Units a second, from the first report within the time to the last: whole intervals between reports, or one that is
    /// cut would count as less.
    pub fn per_second(&self) -> Option<f64> {
        // What the first look finds was reported at some time before.
        let ([from, before], [to, after]) = (self.points.get(1)?, self.points.last()?);
        (to > from).then(|| (after - before) / (to - from))
    }

    /// Seconds, and units a second from the report before.
    pub fn rates(&self) -> Vec<[f64; 2]> {
        let reports = self.points.iter().skip(1);
        let steps = reports.clone().zip(reports.skip(1));
        steps.map(|([from, before], [to, after])| [*to, (after - before) / (to - from)]).collect()
    }
}

/// Looks from the begin of the measured part to its end.
pub struct Watch(JoinHandle<Result<[Used; 2]>>);

impl Watch {
    /// Starts to look after the warm-up.
    pub fn start(root: Target, warmup: Duration, time: Duration) -> Self {
        Watch(tokio::spawn(async move {
            tokio::time::sleep(warmup).await;
            let (begin, mut found) = (Instant::now(), [Used::default(), Used::default()]);
            let mut conn = root.connect().await.context("cannot ask what groups use")?;
            while begin.elapsed() < time {
                let rows: Vec<(String, f64)> = conn
                    .query("SELECT name, ru FROM information_schema.resource_group_usage")
                    .await
                    .context("cannot ask what groups use")?;
                let at = begin.elapsed().as_secs_f64();
                for (group, used) in GROUPS.into_iter().zip(&mut found) {
                    if let Some((_, units)) = rows.iter().find(|(name, _)| name == group) {
                        used.note(at, *units);
                    }
                }
                tokio::time::sleep(PAUSE).await;
            }
            Ok(found)
        }))
    }

    /// What was found.
    pub async fn finish(self) -> Result<[Used; 2]> {
        self.0.await.context("the task that looks has ended")?
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rate_is_that_between_reports() {
        let mut used = Used::default();
        assert_eq!(used.per_second(), None);
        // Reports at 0.5, 1.5 and 2.5 s, looked for each tenth of a second.
        for (at, units) in [(0.0, 70.0), (0.4, 70.0), (0.5, 100.0), (1.0, 100.0), (1.5, 200.0)] {
            used.note(at, units);
        }
        assert_eq!(used.per_second(), Some(100.0));
        used.note(2.5, 400.0);
        used.note(2.9, 400.0);
        assert_eq!(used.per_second(), Some(150.0));
        assert_eq!(used.rates(), [[1.5, 100.0], [2.5, 200.0]]);
    }
}

//! CALIBRATE RESOURCE: how many request units a second the cluster carries, for whoever shares them out.
//!
//! What is asked is made out here; placement knows the answer.

use execution::reply::Reply;
use information_schema::{Listing, int};
use sqlparser::ast::Expr;
use syntax::statement::{CalibrateBy, Until};
use types::calibration::Calibration;
use values::error::{SqlResult, no_datetime};

use crate::session::Session;

impl Session {
    /// The quota, as a row.
    ///
    /// # Errors
    ///
    /// Times that are none, or from which nothing can be found.
    pub(in crate::session) async fn calibrate(&mut self, by: CalibrateBy) -> SqlResult<Reply> {
        let calibration = match by {
            CalibrateBy::Workload(load) => Calibration::Hardware(load),
            CalibrateBy::Used { start, until } => self.times(start, until).await?,
        };
        let mut listing = Listing::of(&["#QUOTA"]);
        listing.rows.push(vec![int(self.engine.storage.calibrate(calibration).await?)]);
        listing.reply()
    }

    async fn times(&mut self, start: Box<Expr>, until: Option<Until>) -> SqlResult<Calibration> {
        let from_ms = self.unix_ms(*start).await?;
        let to_ms = match until {
            None => self.engine.storage.timestamp().await?.physical_ms(),
            Some(Until::Lasts(time)) => {
                from_ms.saturating_add(u64::try_from(time.as_millis()).unwrap_or(u64::MAX))
            }
            Some(Until::End(end)) => self.unix_ms(*end).await?,
        };
        Ok(Calibration::Used { from_ms, to_ms })
    }

    async fn unix_ms(&mut self, time: Expr) -> SqlResult<u64> {
        let shown = time.to_string();
        let value = self.evaluate(time, &[]).await?;
        let us = self.time_of_value(value)?.ok_or_else(|| no_datetime(&shown))?;
        Ok(u64::try_from(us.div_euclid(1_000)).unwrap_or(0))
    }
}

//! RAND(n): MySQL's own generator, so that a seed gives the numbers that it gives there.
//!
//! Where the seed is a constant, the numbers of all rows are one sequence: such a call keeps how far
//! it has come, for as long as its plan lives. No two calls share that, and every plan begins anew. So
//! a plan that names functions for other nodes to look up must not have one.

use std::hash::{Hash, Hasher};
use std::sync::Arc;

use arrow::array::{ArrayRef, Float64Array};
use arrow::datatypes::DataType;
use datafusion::common::tree_node::TreeNodeRecursion;
use datafusion::common::{DataFusionError, Result, plan_err};
use datafusion::logical_expr::{
    ColumnarValue, Expr, LogicalPlan, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature,
    Volatility,
};
use parking_lot::Mutex;
use values::error::external;

use super::convert::to_i64;
use crate::trees::{PlanTree, Tree};

/// Its name within plans.
pub const SEEDED: &str = "mysql_seeded_rand";
/// What both parts of the generator's state are below.
const MOST: u64 = 0x3FFF_FFFF;

/// The generator's state.
#[derive(Clone, Copy, Debug)]
struct Generator(u64, u64);

impl Generator {
    fn new(seed: i64) -> Self {
        let seed = u64::from(seed as u32);
        let first = seed.wrapping_mul(0x1_0001).wrapping_add(55_555_555) as u32;
        let second = seed.wrapping_mul(0x1000_0001) as u32;
        Generator(u64::from(first) % MOST, u64::from(second) % MOST)
    }

    fn next(&mut self) -> f64 {
        self.0 = (self.0 * 3 + self.1) % MOST;
        self.1 = (self.0 + self.1 + 33) % MOST;
        self.0 as f64 / MOST as f64
    }
}

#[derive(Debug)]
struct Seeded {
    /// Where the sequence of a constant seed stands, once it has begun.
    sequence: Mutex<Option<Generator>>,
    signature: Signature,
}

/// A call's own function.
pub fn seeded() -> Arc<ScalarUDF> {
    let signature = Signature::user_defined(Volatility::Volatile);
    Arc::new(ScalarUDF::new_from_impl(Seeded { sequence: Mutex::default(), signature }))
}

/// Whether a plan has such a call.
pub fn within(plan: &LogicalPlan) -> Result<bool> {
    let is_call = |expr: &Expr| {
        Ok(matches!(expr, Expr::ScalarFunction(function) if function.name() == SEEDED))
    };
    let mut found = false;
    plan.visit_all(&mut |node| {
        node.visit_expressions(&mut |expr| {
            found |= expr.has(&is_call)?;
            Ok(TreeNodeRecursion::Continue)
        })
    })?;
    Ok(found)
}

impl PartialEq for Seeded {
    fn eq(&self, other: &Self) -> bool {
        std::ptr::eq(self, other)
    }
}

impl Eq for Seeded {}

impl Hash for Seeded {
    fn hash<H: Hasher>(&self, state: &mut H) {
        SEEDED.hash(state);
    }
}

impl ScalarUDFImpl for Seeded {
    fn name(&self) -> &str {
        SEEDED
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _: &[DataType]) -> Result<DataType> {
        Ok(DataType::Float64)
    }

    fn coerce_types(&self, arguments: &[DataType]) -> Result<Vec<DataType>> {
        match arguments {
            [_] => Ok(arguments.to_vec()),
            _ => plan_err!("Incorrect parameter count in the call to function 'rand'"),
        }
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let rows = args.number_rows;
        // NULL as a seed is 0.
        let seeds = |array: &ArrayRef| {
            let seeds = to_i64(array).map_err(external)?;
            let generators = seeds.iter().map(|seed| Generator::new(seed.unwrap_or(0)));
            Ok::<Vec<Generator>, DataFusionError>(generators.collect())
        };
        let numbers: Float64Array = match args.args.first() {
            Some(ColumnarValue::Scalar(seed)) => {
                let first = seeds(&seed.to_array()?)?;
                let Some(first) = first.first() else { return plan_err!("RAND without a seed") };
                let mut sequence = self.sequence.lock();
                let generator = sequence.get_or_insert(*first);
                (0..rows).map(|_| Some(generator.next())).collect()
            }
            Some(ColumnarValue::Array(array)) => {
                seeds(array)?.iter_mut().map(|generator| Some(generator.next())).collect()
            }
            None => return plan_err!("RAND without a seed"),
        };
        Ok(ColumnarValue::Array(Arc::new(numbers)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The numbers that MySQL's manual and users of it show.
    #[test]
    fn a_seed_gives_mysqls_numbers() {
        let mut three = Generator::new(3);
        let numbers = [three.next(), three.next(), three.next()];
        assert_eq!(numbers, [0.9057697559760601, 0.37307905813034536, 0.14808605345719125]);
        assert_eq!(Generator::new(1).next(), 0.40540353712197724);
    }
}

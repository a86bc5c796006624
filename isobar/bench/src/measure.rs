//! Medians, ratios and geometric means, and how they are shown.

use std::io::IsTerminal as _;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

/// The middle of some values; none of none.
pub fn median(values: &[f64]) -> Option<f64> {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let (below, above) =
        (sorted.get(sorted.len().checked_sub(1)? / 2)?, sorted.get(sorted.len() / 2)?);
    Some((below + above) / 2.0)
}

/// The value below which such a part of the values is; none of none.
pub fn quantile(values: &[f64], part: f64) -> Option<f64> {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let at = (part * sorted.len() as f64).ceil().max(1.0) as usize - 1;
    sorted.get(at.min(sorted.len().checked_sub(1)?)).copied()
}

/// The geometric mean of positive values; none of none.
pub fn geometric_mean(values: &[f64]) -> Option<f64> {
    if values.is_empty() || values.iter().any(|value| *value <= 0.0) {
        return None;
    }
    Some((values.iter().map(|value| value.ln()).sum::<f64>() / values.len() as f64).exp())
}

/// A bar on a terminal, nothing elsewhere.
pub fn bar(length: u64, label: &str) -> ProgressBar {
    let bar = ProgressBar::new(length);
    if !std::io::stderr().is_terminal() {
        bar.set_draw_target(ProgressDrawTarget::hidden());
    }
    if let Ok(style) =
        ProgressStyle::with_template("{prefix} {bar:30} {pos}/{len}  {msg}  {eta} left")
    {
        bar.set_style(style);
    }
    bar.set_prefix(label.to_owned());
    bar
}

/// Rows under headings, numbers to the right.
pub fn table(head: &[String], rows: &[Vec<String>]) -> String {
    let width = |column: usize| {
        let cells = rows
            .iter()
            .chain([&head.to_vec()])
            .filter_map(|row| row.get(column))
            .map(|cell| cell.chars().count())
            .max();
        cells.unwrap_or(0)
    };
    let widths: Vec<usize> = (0..head.len()).map(width).collect();
    let line = |row: &[String]| {
        let cells: Vec<String> = row
            .iter()
            .zip(&widths)
            .enumerate()
            .map(|(at, (cell, width))| match at {
                0 => format!("{cell:<width$}"),
                _ => format!("{cell:>width$}"),
            })
            .collect();
        cells.join("  ").trim_end().to_owned() + "\n"
    };
    rows.iter().map(|row| line(row)).fold(line(head), |text, row| text + &row)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_middle_and_the_mean_are_those_of_a_text_book() {
        assert_eq!(median(&[3.0, 1.0, 2.0]), Some(2.0));
        assert_eq!(median(&[4.0, 1.0, 2.0, 3.0]), Some(2.5));
        assert_eq!((median(&[]), geometric_mean(&[]), quantile(&[], 0.5)), (None, None, None));
        assert!((geometric_mean(&[1.0, 10.0, 100.0]).unwrap() - 10.0).abs() < 1e-9);
        assert_eq!(geometric_mean(&[1.0, 0.0]), None);
        let hundred: Vec<f64> = (1..=100).map(f64::from).collect();
        assert_eq!((quantile(&hundred, 0.5), quantile(&hundred, 0.99)), (Some(50.0), Some(99.0)));
        assert_eq!(quantile(&[7.0], 0.99), Some(7.0));
    }

    #[test]
    fn columns_are_aligned() {
        let rows = [vec!["Q1".to_owned(), "10.5".to_owned()]];
        assert_eq!(table(&["".to_owned(), "ms".to_owned()], &rows), "      ms\nQ1  10.5\n");
    }
}

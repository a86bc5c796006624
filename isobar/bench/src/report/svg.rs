//! Small plots as inline SVG: dots with intervals, lines over time, stacked bars.
//!
//! Only what the page needs; axes carry their unit, and every number is also in a table.

use std::fmt::Write as _;

/// Text as it may stand in HTML and SVG.
pub fn escape(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\'' => out.push_str("&#39;"),
            // Other control characters may not stand in a page at all.
            c if c.is_control() && c != '\n' && c != '\t' => out.push('\u{fffd}'),
            c => out.push(c),
        }
    }
    out
}

/// A number with about three digits, in thousands and millions where it is large.
pub fn short(value: f64) -> String {
    let size = value.abs();
    let digits = |value: f64| {
        let size = value.abs();
        let places = match size {
            _ if size == 0.0 || size >= 99.95 => 0,
            _ if size >= 9.995 => 1,
            _ => 2,
        };
        format!("{value:.places$}")
    };
    match size {
        _ if size >= 999_500.0 => format!("{} M", digits(value / 1e6)),
        _ if size >= 99_950.0 => format!("{} k", digits(value / 1e3)),
        _ => digits(value),
    }
}

/// A round number, as an axis shows it: without the noughts that say how exact it is.
fn round(value: f64) -> String {
    let text = short(value);
    let (number, unit) = text.split_once(' ').map_or((&*text, None), |(n, unit)| (n, Some(unit)));
    let number = match number.contains('.') {
        true => number.trim_end_matches('0').trim_end_matches('.'),
        false => number,
    };
    unit.map_or(number.to_owned(), |unit| format!("{number} {unit}"))
}

/// Values to positions.
#[derive(Clone, Copy, Debug)]
pub struct Axis {
    least: f64,
    most: f64,
    log: bool,
    from: f64,
    to: f64,
}

impl Axis {
    /// From 0 to beyond the largest value; logarithmic where values are far apart.
    pub fn fit(values: impl Iterator<Item = f64>, may_log: bool, from: f64, to: f64) -> Self {
        let values: Vec<f64> = values.filter(|value| value.is_finite() && *value >= 0.0).collect();
        let most = values.iter().copied().fold(0.0, f64::max);
        let positive = values.iter().copied().filter(|value| *value > 0.0);
        let least = positive.fold(f64::INFINITY, f64::min);
        let log = may_log && least.is_finite() && most / least > 12.0;
        if log {
            let (least, most) =
                (10_f64.powf(least.log10().floor()), 10_f64.powf(most.log10().ceil()));
            return Axis { least, most, log, from, to };
        }
        let most = if most > 0.0 { most * 1.05 } else { 1.0 };
        Axis { least: 0.0, most, log, from, to }
    }

    /// From one number to another.
    pub fn linear(least: f64, most: f64, from: f64, to: f64) -> Self {
        Axis { least, most: if most > least { most } else { least + 1.0 }, log: false, from, to }
    }

    /// Where a value is.
    pub fn at(&self, value: f64) -> f64 {
        let part = if self.log {
            (value.max(self.least).log10() - self.least.log10())
                / (self.most.log10() - self.least.log10())
        } else {
            (value - self.least) / (self.most - self.least)
        };
        self.from + part.clamp(0.0, 1.0) * (self.to - self.from)
    }

    /// Round numbers on it.
    pub fn ticks(&self) -> Vec<f64> {
        if self.log {
            let (first, last) =
                (self.least.log10().round() as i32, self.most.log10().round() as i32);
            return (first..=last).map(|power| 10_f64.powi(power)).collect();
        }
        let rough = (self.most - self.least) / 4.0;
        let power = 10_f64.powf(rough.log10().floor());
        let step =
            [1.0, 2.0, 2.5, 5.0, 10.0].map(|by| by * power).into_iter().find(|step| *step >= rough);
        let step = step.unwrap_or(rough);
        let first = (self.least / step).ceil() as i64;
        (first..)
            .map(|n| n as f64 * step)
            .take_while(|tick| *tick <= self.most * 1.0001)
            .take(12)
            .collect()
    }
}

/// A drawing.
#[derive(Debug)]
pub struct Svg {
    width: f64,
    height: f64,
    body: String,
}

impl Svg {
    /// An empty one.
    pub fn new(width: f64, height: f64) -> Self {
        Svg { width, height, body: String::new() }
    }

    /// A text; `class` names its style in the page.
    pub fn text(&mut self, x: f64, y: f64, anchor: &str, class: &str, text: &str) {
        let text = escape(text);
        let _ = write!(
            self.body,
            r#"<text x="{x:.1}" y="{y:.1}" text-anchor="{anchor}" class="{class}">{text}</text>"#
        );
    }

    /// A line.
    pub fn line(&mut self, [x1, y1]: [f64; 2], [x2, y2]: [f64; 2], colour: &str, width: f64) {
        let _ = write!(
            self.body,
            r#"<line x1="{x1:.1}" y1="{y1:.1}" x2="{x2:.1}" y2="{y2:.1}" stroke="{colour}" stroke-width="{width}"/>"#
        );
    }

    /// A filled rectangle, with a tip that a pointer shows.
    pub fn rect(&mut self, [x, y]: [f64; 2], [w, h]: [f64; 2], colour: &str, tip: &str) {
        let (w, h, tip) = (w.max(0.0), h.max(0.0), escape(tip));
        let _ = write!(
            self.body,
            r#"<rect x="{x:.1}" y="{y:.1}" width="{w:.1}" height="{h:.1}" fill="{colour}"><title>{tip}</title></rect>"#
        );
    }

    /// A dot.
    pub fn dot(&mut self, x: f64, y: f64, colour: &str, tip: &str) {
        let tip = escape(tip);
        let _ = write!(
            self.body,
            r##"<circle cx="{x:.1}" cy="{y:.1}" r="4.5" fill="{colour}" stroke="#fff" stroke-width="1"><title>{tip}</title></circle>"##
        );
    }

    /// Points joined by lines.
    pub fn path(&mut self, points: &[[f64; 2]], colour: &str, width: f64) {
        let mut d = String::new();
        for (number, [x, y]) in points.iter().enumerate() {
            let _ = write!(d, "{}{x:.1} {y:.1}", if number == 0 { 'M' } else { 'L' });
        }
        let _ = write!(
            self.body,
            r#"<path d="{d}" fill="none" stroke="{colour}" stroke-width="{width}" stroke-linejoin="round"/>"#
        );
    }

    /// The element; `label` is what it shows, for those who cannot see it.
    pub fn finish(self, label: &str) -> String {
        format!(
            r#"<svg viewBox="0 0 {} {}" role="img" aria-label="{}">{}</svg>"#,
            self.width,
            self.height,
            escape(label),
            self.body
        )
    }
}

/// Room for names at the left, for numbers at the right, for a title at the top; a line's height.
const LEFT: f64 = 168.0;
const RIGHT: f64 = 58.0;
const TOP: f64 = 34.0;
const STEP: f64 = 26.0;
/// The same of a plot over time.
const TIME_LEFT: f64 = 46.0;
const TIME_RIGHT: f64 = 14.0;
const TIME_TOP: f64 = 44.0;
const TIME_HEIGHT: f64 = 150.0;
/// Colour of rules and axes.
const RULE: &str = "#e5e7eb";

/// A line of a plot of dots.
pub struct Dot {
    /// Its name.
    pub name: String,
    /// Its colour.
    pub colour: &'static str,
    /// Where it is.
    pub value: f64,
    /// Half its interval.
    pub half: Option<f64>,
}

/// Dots with intervals, one a line.
pub fn dots(title: &str, unit: &str, dots: &[Dot]) -> String {
    let width = 520.0;
    let bottom = TOP + STEP * dots.len() as f64;
    let mut svg = Svg::new(width, bottom + 34.0);
    svg.text(0.0, 16.0, "start", "title", title);
    let reach = dots.iter().flat_map(|dot| [dot.value, dot.value + dot.half.unwrap_or(0.0)]);
    let axis = Axis::fit(reach, true, LEFT, width - RIGHT);
    for tick in axis.ticks() {
        let x = axis.at(tick);
        svg.line([x, TOP - 6.0], [x, bottom], RULE, 1.0);
        svg.text(x, bottom + 14.0, "middle", "tick", &round(tick));
    }
    let scale = if axis.log { " (logarithmic)" } else { "" };
    svg.text(width - RIGHT, bottom + 29.0, "end", "unit", &format!("{unit}{scale}"));
    for (number, dot) in dots.iter().enumerate() {
        let y = TOP + STEP * (number as f64 + 0.5) - 4.0;
        svg.text(LEFT - 12.0, y + 4.0, "end", "label", &dot.name);
        let value = match dot.half {
            Some(half) => format!("{} ± {} {unit}", short(dot.value), short(half)),
            None => format!("{} {unit}, one round", short(dot.value)),
        };
        if let Some(half) = dot.half {
            let (from, to) = (axis.at((dot.value - half).max(0.0)), axis.at(dot.value + half));
            svg.line([from, y], [to, y], dot.colour, 2.0);
            for x in [from, to] {
                svg.line([x, y - 4.0], [x, y + 4.0], dot.colour, 2.0);
            }
        }
        svg.dot(axis.at(dot.value), y, dot.colour, &format!("{}: {value}", dot.name));
        let beyond = axis.at(dot.value + dot.half.unwrap_or(0.0)) + 10.0;
        svg.text(beyond, y + 4.0, "start", "value", &short(dot.value));
    }
    svg.finish(&format!("{title}, {unit}"))
}

/// A line of a plot over time.
pub struct Line {
    /// Its name.
    pub name: &'static str,
    /// Its colour.
    pub colour: &'static str,
    /// Seconds and values.
    pub points: Vec<[f64; 2]>,
}

/// Lines over time, with the interval shaded in which a batch runs, if one does; `most` is the top of the scale.
pub fn over_time(
    title: &str,
    unit: &str,
    lines: &[Line],
    shaded: Option<[f64; 2]>,
    most: f64,
    length: f64,
) -> String {
    let width = 520.0;
    let bottom = TIME_TOP + TIME_HEIGHT;
    let mut svg = Svg::new(width, bottom + 36.0);
    svg.text(0.0, 16.0, "start", "title", title);
    let x = Axis::linear(0.0, length, TIME_LEFT, width - TIME_RIGHT);
    let y = Axis::fit([most].into_iter(), false, bottom, TIME_TOP);
    if let Some([from, to]) = shaded.map(|times| times.map(|time| x.at(time))) {
        svg.rect([from, TIME_TOP], [to - from, TIME_HEIGHT], "#dbeafe", "the batch runs");
        svg.text((from + to) / 2.0, TIME_TOP - 5.0, "middle", "shade", "batch runs");
    }
    for tick in y.ticks() {
        svg.line([TIME_LEFT, y.at(tick)], [width - TIME_RIGHT, y.at(tick)], RULE, 1.0);
        svg.text(TIME_LEFT - 6.0, y.at(tick) + 4.0, "end", "tick", &round(tick));
    }
    for tick in x.ticks() {
        svg.text(x.at(tick), bottom + 15.0, "middle", "tick", &round(tick));
    }
    svg.text(width - TIME_RIGHT, bottom + 31.0, "end", "unit", "seconds");
    svg.text(TIME_LEFT - 6.0, TIME_TOP - 10.0, "end", "unit", unit);
    let mut at = width - TIME_RIGHT;
    for line in lines {
        let points: Vec<[f64; 2]> = line.points.iter().map(|[s, v]| [x.at(*s), y.at(*v)]).collect();
        svg.path(&points, line.colour, 1.8);
        at -= 30.0 + 7.0 * line.name.chars().count() as f64;
        svg.rect([at, 8.0], [14.0, 3.0], line.colour, line.name);
        svg.text(at + 19.0, 13.0, "start", "tick", line.name);
    }
    svg.finish(&format!("{title}, {unit} over seconds"))
}

/// A bar of parts.
pub struct Bar {
    /// Its name.
    pub name: String,
    /// Name, colour and size of each part.
    pub parts: Vec<(String, &'static str, f64)>,
}

/// Stacked bars, one a line.
pub fn bars(title: &str, unit: &str, bars: &[Bar]) -> String {
    let width = 1060.0;
    let bottom = TOP + STEP * bars.len() as f64;
    let mut svg = Svg::new(width, bottom + 34.0);
    svg.text(0.0, 16.0, "start", "title", title);
    let sum = |bar: &Bar| bar.parts.iter().map(|(_, _, size)| size).sum::<f64>();
    let axis = Axis::fit(bars.iter().map(sum), false, LEFT, width - RIGHT);
    for tick in axis.ticks() {
        svg.line([axis.at(tick), TOP - 6.0], [axis.at(tick), bottom], RULE, 1.0);
        svg.text(axis.at(tick), bottom + 14.0, "middle", "tick", &round(tick));
    }
    svg.text(width - RIGHT, bottom + 29.0, "end", "unit", unit);
    for (number, bar) in bars.iter().enumerate() {
        let y = TOP + STEP * number as f64;
        svg.text(LEFT - 12.0, y + 13.0, "end", "label", &bar.name);
        let mut from = 0.0;
        for (name, colour, size) in &bar.parts {
            let (left, right) = (axis.at(from), axis.at(from + size));
            svg.rect(
                [left, y],
                [right - left - 1.0, 17.0],
                colour,
                &format!("{name}: {} {unit}", short(*size)),
            );
            if right - left > 7.0 * name.len() as f64 + 6.0 {
                svg.text((left + right) / 2.0, y + 12.5, "middle", "inside", name);
            }
            from += size;
        }
        svg.text(axis.at(from) + 8.0, y + 13.0, "start", "value", &short(from));
    }
    svg.finish(&format!("{title}, {unit}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn axes_hold_their_values_and_have_round_ticks() {
        let axis = Axis::fit([3.0, 8.0].into_iter(), true, 0.0, 100.0);
        assert!(!axis.log && axis.at(0.0) == 0.0 && axis.at(8.0) < 100.0);
        assert_eq!(axis.ticks(), [0.0, 2.5, 5.0, 7.5]);
        let axis = Axis::fit([3.0, 800.0].into_iter(), true, 0.0, 100.0);
        assert!(axis.log);
        assert_eq!(axis.ticks(), [1.0, 10.0, 100.0, 1000.0]);
        assert!((axis.at(10.0) - 33.3).abs() < 0.1);
        for values in [vec![], vec![0.0], vec![f64::NAN], vec![f64::INFINITY, 1.0]] {
            let axis = Axis::fit(values.into_iter(), true, 0.0, 100.0);
            assert!(axis.at(0.0).is_finite() && !axis.ticks().is_empty());
        }
    }

    #[test]
    fn axes_show_round_numbers() {
        for (value, text) in [(0.0, "0"), (5.0, "5"), (0.5, "0.5"), (10.0, "10"), (100.0, "100")] {
            assert_eq!(round(value), text);
        }
        assert_eq!(round(1_000_000.0), "1 M");
        assert_eq!(round(200_000.0), "200 k");
    }

    #[test]
    fn numbers_are_short_and_text_is_harmless() {
        for (value, text) in [
            (0.0, "0"),
            (0.456, "0.46"),
            (12.34, "12.3"),
            (456.7, "457"),
            (123_456.0, "123 k"),
            (2_340_000.0, "2.34 M"),
        ] {
            assert_eq!(short(value), text);
        }
        assert_eq!(escape("<a href='x'>&\u{1}"), "&lt;a href=&#39;x&#39;&gt;&amp;\u{fffd}");
    }
}

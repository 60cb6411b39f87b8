//! Tables that fit the terminal. comfy-table aligns and wraps; what is too narrow for a table's columns loses the
//! least needed ones first, and a line below says which.

use std::sync::OnceLock;

use anstyle::{AnsiColor, Color, Style};
use comfy_table::{Attribute, CellAlignment, ColumnConstraint, ContentArrangement};

/// Columns that give way, the first of them first. Numbers that a narrower question answers (`flow show`,
/// `stats FLOW`, `top`) go before those that a person came for.
const GIVE_WAY: &[&str] = &[
    "MEMORY",
    "OVERHEAD",
    "LIMIT",
    "QUEUES",
    "KIND",
    "RTO",
    "CANCELLED",
    "RECEIVING",
    "SRTT",
    "OWD FROM",
    "BYTES IN",
    "SAVED",
    "BYTES SENT",
    "TRUNCATED",
    "SENT STALE",
    "MEASURED",
    "USER",
    "MEDIA",
    "IDLE",
    "METHOD",
    "SESSION KEY",
    "EVICTED",
    "OVERFLOW",
    "ADU",
    "PREDICTED",
    "CODEL",
    "CHAIN",
    "STALE",
    "TREATMENT",
    "STAMP",
    "SENT",
    "WINDOW",
    "OWD",
    "LEVEL",
    "MIN RTT",
    "MODE",
    "QUEUED BYTES",
    "RATE",
    "PRIORITY",
];

/// Between two columns.
const GAP: usize = 2;

/// Words are wrapped, but no column becomes narrower; names, in the first one, least of all.
const NARROWEST: usize = 16;
const NARROWEST_NAME: usize = 28;

static TERMINAL: OnceLock<u16> = OnceLock::new();

/// Says that standard output is a terminal of this width; else tables are as wide as what they say.
pub(crate) fn fit(columns: u16) {
    let _ = TERMINAL.set(columns);
}

/// One cell: its text, and how it looks.
#[derive(Debug, Clone, Default)]
pub(crate) struct Cell {
    text: String,
    style: Style,
}

impl Cell {
    pub(crate) const fn styled(text: String, style: Style) -> Self {
        Self { text, style }
    }

    fn shown(&self) -> comfy_table::Cell {
        let cell = comfy_table::Cell::new(&self.text);
        match self.style.get_fg_color() {
            Some(Color::Ansi(AnsiColor::Green)) => cell.fg(comfy_table::Color::DarkGreen),
            Some(Color::Ansi(AnsiColor::Yellow)) => cell.fg(comfy_table::Color::DarkYellow),
            Some(Color::Ansi(AnsiColor::Red)) => cell.fg(comfy_table::Color::DarkRed),
            _ => cell,
        }
    }
}

impl<T: ToString> From<T> for Cell {
    fn from(text: T) -> Self {
        Self {
            text: text.to_string(),
            style: Style::new(),
        }
    }
}

/// Rows under a heading; numbers to the right, words to the left.
#[derive(Debug)]
pub(crate) struct Table {
    /// Heading of each column, and whether its cells stand to the right.
    columns: Vec<(&'static str, bool)>,
    rows: Vec<Vec<Cell>>,
}

impl Table {
    /// A heading that begins with `>` sets its column to the right.
    pub(crate) fn new(headings: &[&'static str]) -> Self {
        let columns = headings
            .iter()
            .map(|h| h.strip_prefix('>').map_or((*h, false), |name| (name, true)))
            .collect();
        Self {
            columns,
            rows: Vec::new(),
        }
    }

    pub(crate) fn row(&mut self, cells: Vec<Cell>) {
        self.rows.push(cells);
    }

    pub(crate) const fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// Takes the columns away in which no row has anything to say (empty or `0`).
    pub(crate) fn without_empty(mut self, droppable: &[&str]) -> Self {
        let silent = |i: usize, rows: &[Vec<Cell>]| {
            rows.iter()
                .all(|row| matches!(row[i].text.as_str(), "" | "0" | "-"))
        };
        for i in (0..self.columns.len()).rev() {
            if droppable.contains(&self.columns[i].0) && silent(i, &self.rows) {
                self.columns.remove(i);
                for row in &mut self.rows {
                    row.remove(i);
                }
            }
        }
        self
    }

    /// The text for the terminal that [`fit`] told of.
    pub(crate) fn render(&self) -> String {
        self.within(TERMINAL.get().copied())
    }

    /// The text, no line of it wider than `width`.
    pub(crate) fn within(&self, width: Option<u16>) -> String {
        let wide: Vec<usize> = (0..self.columns.len())
            .map(|i| {
                let cells = self.rows.iter().filter_map(|r| r.get(i));
                let texts = cells.map(|c| c.text.as_str()).chain([self.columns[i].0]);
                let widest = texts.flat_map(str::lines).map(|t| t.chars().count()).max();
                widest.unwrap_or(0)
            })
            .collect();
        let mut shown: Vec<usize> = (0..self.columns.len()).collect();
        let mut left_out = Vec::new();
        if let Some(width) = width {
            // Numbers are never broken; words may be.
            let least = |i: &usize| match self.columns[*i].1 {
                true => wide[*i],
                false if *i == 0 => wide[*i].min(NARROWEST_NAME),
                false => wide[*i].min(NARROWEST),
            };
            let needed =
                |shown: &[usize]| shown.iter().map(|i| least(i) + GAP).sum::<usize>() - GAP;
            for name in GIVE_WAY {
                if shown.len() < 2 || needed(&shown) <= usize::from(width) {
                    break;
                }
                if let Some(at) = shown
                    .iter()
                    .skip(1)
                    .position(|i| self.columns[*i].0 == *name)
                {
                    shown.remove(at + 1);
                    left_out.push(*name);
                }
            }
        }
        let mut text = self.laid_out(&shown, &wide, width);
        if !left_out.is_empty() {
            let list = left_out.join(", ").to_lowercase();
            let note = format!("(this terminal is too narrow for: {list})");
            text += &folded(&note, width.map_or(usize::MAX, usize::from));
        }
        text
    }

    fn laid_out(&self, shown: &[usize], wide: &[usize], width: Option<u16>) -> String {
        let mut table = comfy_table::Table::new();
        table
            .load_style(comfy_table::TableStyle::new())
            .enforce_styling()
            .set_content_arrangement(ContentArrangement::Dynamic);
        table.set_header(
            shown
                .iter()
                .map(|i| comfy_table::Cell::new(self.columns[*i].0).add_attribute(Attribute::Bold)),
        );
        for row in &self.rows {
            table.add_row(shown.iter().map(|i| row[*i].shown()));
        }
        let mut all = 0;
        for (at, column) in table.column_iter_mut().enumerate() {
            let i = shown[at];
            let gap = if at == 0 { 0 } else { GAP as u16 };
            column.set_padding((gap, 0));
            if self.columns[i].1 {
                column.set_cell_alignment(CellAlignment::Right);
                column.set_constraint(ColumnConstraint::ContentWidth);
            }
            all += wide[i] + usize::from(gap);
        }
        let natural = u16::try_from(all).unwrap_or(u16::MAX);
        table.set_width(width.map_or(natural, |w| w.min(natural)));
        table.to_string().lines().map(trimmed).collect()
    }
}

/// Words in lines of at most `width` characters.
fn folded(words: &str, width: usize) -> String {
    let mut text = String::new();
    let mut column = 0;
    for word in words.split(' ') {
        let long = word.chars().count();
        if column > 0 && column + 1 + long <= width {
            text.push(' ');
            column += 1;
        } else if column > 0 {
            text.push('\n');
            column = 0;
        }
        text.push_str(word);
        column += long;
    }
    text.push('\n');
    text
}

/// A line without the spaces at its end, even where they are styled.
fn trimmed(line: &str) -> String {
    let mut rest = line.trim_end();
    let mut ends = String::new();
    while let Some(at) = rest.rfind("\x1b[").filter(|_| rest.ends_with('m')) {
        let code = &rest[at + 2..rest.len() - 1];
        if !code.bytes().all(|b| b.is_ascii_digit() || b == b';') {
            break;
        }
        ends.insert_str(0, &rest[at..]);
        rest = rest[..at].trim_end();
    }
    format!("{rest}{ends}\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plain(text: &str) -> String {
        anstream::adapter::strip_str(text).to_string()
    }

    #[test]
    fn table_aligns_columns_without_trailing_spaces() {
        let mut t = Table::new(&["NAME", ">COUNT", "NOTE"]);
        t.row(vec!["a".into(), 5.into(), "".into()]);
        t.row(vec!["longer".into(), 12_345_678.into(), "x".into()]);
        t.row(vec!["".into(), "".into(), "y".into()]);
        assert_eq!(
            plain(&t.render()),
            "NAME       COUNT  NOTE\na              5\nlonger  12345678  x\n                  y\n"
        );
    }

    #[test]
    fn column_of_zeros_is_left_out() {
        let mut t = Table::new(&["A", ">B", ">C"]);
        t.row(vec!["x".into(), 0.into(), 0.into()]);
        let t = t.without_empty(&["B"]);
        assert_eq!(plain(&t.render()), "A  C\nx  0\n");
    }

    #[test]
    fn note_below_a_narrow_table_is_folded_between_words() {
        assert_eq!(folded("(too narrow for: a)", 80), "(too narrow for: a)\n");
        assert_eq!(
            folded("(too narrow for: owd, user)", 21),
            "(too narrow for: owd,\nuser)\n"
        );
        // A word alone is never broken.
        assert_eq!(folded("unbreakable word", 4), "unbreakable\nword\n");
    }

    #[test]
    fn narrow_table_wraps_words_and_never_breaks_numbers() {
        let mut t = Table::new(&["NAME", ">BYTES IN", ">SENT", "FOUND"]);
        t.row(vec![
            "v0/2001:db8:2:0:1234:5678:9abc:def0".into(),
            "123456.7 MB".into(),
            4_294_967_296_u64.into(),
            "what was found here is told in a few words".into(),
        ]);
        assert!(plain(&t.within(None)).contains("in a few words"));
        for width in [60, 80, 120] {
            let text = plain(&t.within(Some(width)));
            for line in text.lines() {
                assert!(
                    line.chars().count() <= usize::from(width),
                    "{width}: {text}"
                );
            }
            assert!(text.contains("4294967296"), "{text}");
            assert_eq!(text.contains("123456.7 MB"), width >= 80, "{text}");
            assert_eq!(
                text.contains("too narrow for: bytes in"),
                width < 80,
                "{text}"
            );
        }
    }
}

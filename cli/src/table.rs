//! Aligned tables.

use std::fmt::Write as _;

use anstyle::Style;

use crate::format::HEADING;

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
        for i in (0..self.columns.len()).rev() {
            let silent = self
                .rows
                .iter()
                .all(|row| matches!(row[i].text.as_str(), "" | "0" | "-"));
            if silent && droppable.contains(&self.columns[i].0) {
                self.columns.remove(i);
                for row in &mut self.rows {
                    row.remove(i);
                }
            }
        }
        self
    }

    /// The text, one line per row.
    pub(crate) fn render(&self) -> String {
        let width = |i: usize| {
            let cells = self
                .rows
                .iter()
                .filter_map(|r| r.get(i))
                .map(|c| c.text.chars().count());
            cells.chain([self.columns[i].0.len()]).max().unwrap_or(0)
        };
        let widths: Vec<usize> = (0..self.columns.len()).map(width).collect();
        let heading: Vec<Cell> = self
            .columns
            .iter()
            .map(|(h, _)| Cell::styled((*h).to_string(), HEADING))
            .collect();
        let mut text = String::new();
        for row in std::iter::once(&heading).chain(&self.rows) {
            let mut line = String::new();
            let mut gap = 0;
            for (i, cell) in row.iter().enumerate() {
                let pad = widths[i].saturating_sub(cell.text.chars().count());
                let (before, after) = if self.columns[i].1 {
                    (pad, 0)
                } else {
                    (0, pad)
                };
                // Padding is written only before the next cell: no spaces at the end of a line.
                if !cell.text.is_empty() {
                    let style = cell.style;
                    let _ = write!(
                        line,
                        "{:1$}{style}{2}{style:#}",
                        "",
                        gap + before,
                        cell.text
                    );
                    gap = after + 2;
                } else {
                    gap += widths[i] + 2;
                }
            }
            text.push_str(&line);
            text.push('\n');
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plain(table: &Table) -> String {
        anstream::adapter::strip_str(&table.render()).to_string()
    }

    #[test]
    fn table_aligns_columns_without_trailing_spaces() {
        let mut t = Table::new(&["NAME", ">COUNT", "NOTE"]);
        t.row(vec!["a".into(), 5.into(), "".into()]);
        t.row(vec!["longer".into(), 12_345_678.into(), "x".into()]);
        t.row(vec!["".into(), "".into(), "y".into()]);
        assert_eq!(
            plain(&t),
            "NAME       COUNT  NOTE\na              5\nlonger  12345678  x\n                  y\n"
        );
    }

    #[test]
    fn column_of_zeros_is_left_out() {
        let mut t = Table::new(&["A", ">B", ">C"]);
        t.row(vec!["x".into(), 0.into(), 0.into()]);
        let t = t.without_empty(&["B"]);
        assert_eq!(plain(&t), "A  C\nx  0\n");
    }
}

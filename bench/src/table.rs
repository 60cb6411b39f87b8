//! Tables for a terminal.

/// A table with aligned columns: the first left, all others right.
#[derive(Clone, Debug, Default)]
pub(crate) struct Table {
    rows: Vec<Vec<String>>,
}

impl Table {
    /// A table with this head.
    pub(crate) fn new(head: &[&str]) -> Self {
        Self {
            rows: vec![head.iter().map(|&cell| cell.to_owned()).collect()],
        }
    }

    /// Adds a row.
    pub(crate) fn row(&mut self, cells: Vec<String>) {
        self.rows.push(cells);
    }

    /// The text, one line per row, a rule below the head.
    pub(crate) fn render(&self) -> String {
        let columns = self.rows.iter().map(Vec::len).max().unwrap_or(0);
        let width = |column: usize| {
            let cells = self.rows.iter().filter_map(|row| row.get(column));
            cells.map(|cell| cell.chars().count()).max().unwrap_or(0)
        };
        let widths: Vec<usize> = (0..columns).map(width).collect();
        let mut text = String::new();
        for (number, row) in self.rows.iter().enumerate() {
            let mut line = String::new();
            for (column, (cell, &width)) in row.iter().zip(&widths).enumerate() {
                line += &match column {
                    0 => format!("{cell:<width$}"),
                    _ => format!("  {cell:>width$}"),
                };
            }
            text = text + line.trim_end() + "\n";
            if number == 0 {
                let total = widths.iter().sum::<usize>() + 2 * columns.saturating_sub(1);
                text = text + &"-".repeat(total) + "\n";
            }
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn table_aligns_its_columns() {
        let mut table = Table::new(&["queue", "audio"]);
        table.row(vec!["pfifo 5".into(), "89.1".into()]);
        table.row(vec!["fq".into(), "100.0".into()]);
        assert_eq!(
            table.render(),
            "queue    audio\n--------------\npfifo 5   89.1\nfq       100.0\n"
        );
    }
}

package measure

import (
	"fmt"
	"io"
	"math"
	"strings"
	"text/tabwriter"
)

// Table writes a report for people: a line for each row, and one for its floor.
func (r Report) Table(out io.Writer) error {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', tabwriter.AlignRight)
	_, _ = fmt.Fprintf(w, "%s\n\n", r.Machine)
	_, _ = fmt.Fprintln(w, "unit\tmin\tp10\tp50\tp99\tratio\tserver CPU\tinside\tother\tserver memory\t  row")
	for _, row := range r.Rows {
		if row.Error != "" {
			_, _ = fmt.Fprintf(w, "\t\t\t\t\t\t\t\t\t\t  %s  FAILED: %s\n", row.Name, strings.ReplaceAll(row.Error, "\n", "; "))
			continue
		}
		if row.LeftOut != "" {
			_, _ = fmt.Fprintf(w, "\t\t\t\t\t\t\t\t\t\t  %s  LEFT OUT: %s\n", row.Name, row.LeftOut)
			continue
		}
		server, inside, beside := row.CPU.figures(row.Per)
		memory := ""
		if row.ServerMiB > 0 {
			memory = Figure(row.ServerMiB) + " MiB"
		}
		verdicts := make([]string, len(row.Goals))
		for i, v := range row.Goals {
			verdicts[i] = v.String()
		}
		_, _ = fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%s\t%s\t  %s\n", row.Unit, row.Row.figures(), times(row.Ratio), server, inside, beside, memory,
			strings.TrimSpace(row.Name+"  "+strings.Join(verdicts, ", ")))
		if row.Latency != nil {
			_, _ = fmt.Fprintf(w, "ms\t%s\t\t\t\t\t\t    each %s\n", row.Latency.figures(), row.Per)
		}
		if row.Floor.N > 0 {
			_, _, beside := row.FloorCPU.figures(row.Per)
			_, _ = fmt.Fprintf(w, "%s\t%s\t\t\t\t%s\t\t    floor\n", row.Unit, row.Floor.figures(), beside)
		}
		if row.FloorLatency != nil {
			_, _ = fmt.Fprintf(w, "ms\t%s\t\t\t\t\t\t    floor, each\n", row.FloorLatency.figures())
		}
		if row.Note != "" {
			_, _ = fmt.Fprintf(w, "\t\t\t\t\t\t\t\t\t\t    %s\n", row.Note)
		}
	}
	if r.Interrupted {
		_, _ = fmt.Fprintln(w, "interrupted: the remaining rows were not measured\t\t\t\t\t\t\t\t\t\t")
	}
	return w.Flush()
}

// figures formats the CPU times of one operation; "" if not measured.
func (c *CPU) figures(per string) (server, inside, beside string) {
	if c == nil {
		return "", "", ""
	}
	if c.Server > 0 {
		server = Figure(c.Server) + " ms/" + per
	}
	if c.Inside > 0 {
		inside = Figure(c.Inside) + " ms"
	}
	if c.Other > 0 {
		beside = Figure(c.Other) + " ms"
	}
	return server, inside, beside
}

// figures returns the cells of minimum, p10, p50 and p99.
func (s Summary) figures() string {
	return strings.Join([]string{Figure(s.Min), Figure(s.P10), Figure(s.P50), Figure(s.P99)}, "\t")
}

// times formats the ratio of a row to its floor. It is empty if there is none.
func times(ratio float64) string {
	if math.IsNaN(ratio) || math.IsInf(ratio, 0) || ratio == 0 {
		return ""
	}
	return "×" + Figure(ratio)
}

// Figure formats a number with three significant digits.
func Figure(v float64) string {
	switch abs := math.Abs(v); {
	case abs >= 100:
		return fmt.Sprintf("%.0f", v)
	case abs >= 10:
		return fmt.Sprintf("%.1f", v)
	case abs >= 0.1 || v == 0:
		return fmt.Sprintf("%.2f", v)
	default:
		return fmt.Sprintf("%.2g", v)
	}
}

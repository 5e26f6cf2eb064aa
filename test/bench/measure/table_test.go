package measure

import (
	"strings"
	"testing"
)

func TestTable(t *testing.T) {
	report := Report{Rows: []Result{
		{Name: "claim", Unit: Milliseconds, Per: "claim", Row: Summary{N: 1, Min: 1, P10: 2, P50: 3, P99: 4}, Floor: Summary{N: 1, P50: 0.5}, Ratio: 6, CPU: &CPU{Server: 0.25}},
		{Name: "run/sustained/true", Unit: PerSecond, Per: "run", Row: Summary{N: 1, P50: 30}, CPU: &CPU{Server: 20, Inside: 30, Other: 5.5},
			Latency: &Summary{P50: 111, P99: 222}, Floor: Summary{N: 1, P50: 500}, FloorCPU: &CPU{Other: 2.4}, FloorLatency: &Summary{P50: 3.3}},
		{Name: "keystroke", Error: "no terminal"},
	}}
	var out strings.Builder
	if err := report.Table(&out); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"1.00  2.00  3.00  4.00", "×6.00", "0.25 ms/claim", "20.0 ms/run  30.0 ms  5.50 ms", "111   222", "each run", "2.40 ms", "floor, each", "keystroke  FAILED: no terminal"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("%q isn't in\n%s", want, out.String())
		}
	}
}

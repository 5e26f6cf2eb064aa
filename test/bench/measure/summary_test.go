package measure

import (
	"slices"
	"testing"
)

func TestSummarise(t *testing.T) {
	hundred := make([]float64, 100)
	for i := range hundred {
		hundred[i] = float64(100 - i) // 100 … 1
	}
	for _, test := range []struct {
		name    string
		samples []float64
		want    Summary
	}{
		{"none", nil, Summary{}},
		{"one", []float64{7}, Summary{N: 1, Min: 7, P10: 7, P50: 7, P99: 7, Max: 7}},
		{"two", []float64{3, 1}, Summary{N: 2, Min: 1, P10: 1, P50: 1, P99: 3, Max: 3}},
		{"three", []float64{3, 1, 2}, Summary{N: 3, Min: 1, P10: 1, P50: 2, P99: 3, Max: 3}},
		{"a hundred", hundred, Summary{N: 100, Min: 1, P10: 10, P50: 50, P99: 99, Max: 100}},
		{"a thousand", slices.Repeat(hundred, 10), Summary{N: 1000, Min: 1, P10: 10, P50: 50, P99: 99, Max: 100}},
		{"equal", []float64{5, 5, 5, 5}, Summary{N: 4, Min: 5, P10: 5, P50: 5, P99: 5, Max: 5}},
		{"an outlier", append(slices.Repeat([]float64{1}, 100), 1000), Summary{N: 101, Min: 1, P10: 1, P50: 1, P99: 1, Max: 1000}},
		{"two outliers", append(slices.Repeat([]float64{1}, 98), 500, 1000), Summary{N: 100, Min: 1, P10: 1, P50: 1, P99: 500, Max: 1000}},
		{"negative", []float64{-1, -3, -2}, Summary{N: 3, Min: -3, P10: -3, P50: -2, P99: -1, Max: -1}},
	} {
		if got := Summarise(slices.Clone(test.samples)); got != test.want {
			t.Errorf("%s: %+v, want %+v", test.name, got, test.want)
		}
	}
}

func TestFigure(t *testing.T) {
	for _, test := range []struct {
		v    float64
		want string
	}{
		{0, "0.00"}, {0.00123, "0.0012"}, {0.1, "0.10"}, {0.567, "0.57"}, {1.234, "1.23"}, {12.34, "12.3"}, {123.4, "123"}, {98765.4, "98765"}, {-0.5, "-0.50"},
	} {
		if got := Figure(test.v); got != test.want {
			t.Errorf("%v: %q, want %q", test.v, got, test.want)
		}
	}
}

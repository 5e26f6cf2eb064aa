package measure

import (
	"math"
	"slices"
)

// A Summary describes samples. It is zero if there are none.
type Summary struct {
	N   int     `json:"n"`
	Min float64 `json:"min"`
	P10 float64 `json:"p10"`
	P50 float64 `json:"p50"`
	P99 float64 `json:"p99"`
	Max float64 `json:"max"`
}

// Summarise sorts the samples and describes them.
func Summarise(samples []float64) Summary {
	if len(samples) == 0 {
		return Summary{}
	}
	slices.Sort(samples)
	return Summary{
		N: len(samples), Min: samples[0], Max: samples[len(samples)-1],
		P10: quantile(samples, 0.10), P50: quantile(samples, 0.50), P99: quantile(samples, 0.99),
	}
}

// summarised is Summarise, but nil if there are no samples.
func summarised(samples []float64) *Summary {
	if len(samples) == 0 {
		return nil
	}
	s := Summarise(samples)
	return &s
}

// quantile returns the smallest sample that is at least as large as the fraction q of all samples:
// the nearest rank, so always a time that was measured.
func quantile(sorted []float64, q float64) float64 {
	rank := int(math.Ceil(q * float64(len(sorted))))
	return sorted[min(max(rank, 1), len(sorted))-1]
}

package runtime

import (
	"slices"
	"unicode/utf8"
)

// Bounds of labels.
const (
	MaxLabels     = 32  // of a claim, of an execution including its claim's, or of a filter
	MaxLabelBytes = 256 // of a name or a value
)

// A Label is a name and a value that a caller attached to a claim or an execution.
type Label struct {
	Name  string `json:"name"`
	Value string `json:"value"`
}

// ValidateLabels returns INVALID_INPUT for labels that can't be attached.
func ValidateLabels(labels []Label) error {
	if len(labels) > MaxLabels {
		return Invalid("labels", "must be at most %d labels, not %d", MaxLabels, len(labels))
	}
	for _, l := range labels {
		if l.Name == "" || len(l.Name) > MaxLabelBytes || len(l.Value) > MaxLabelBytes || !utf8.ValidString(l.Name+l.Value) {
			return Invalid("labels", "each must have a name of 1 to %d bytes and a value of at most %d", MaxLabelBytes, MaxLabelBytes)
		}
	}
	return nil
}

// WithLabels returns the labels of an execution: its claim's and its own. Its own replace those of
// the claim with the same name. It returns INVALID_INPUT if there are more than MaxLabels.
func WithLabels(claim, own []Label) ([]Label, error) {
	if len(own) == 0 {
		return claim, nil
	}
	var all []Label
	for _, l := range claim {
		if !slices.ContainsFunc(own, func(o Label) bool { return o.Name == l.Name }) {
			all = append(all, l)
		}
	}
	if all = append(all, own...); len(all) > MaxLabels {
		return nil, Invalid("labels", "must be at most %d labels including those of the claim, not %d", MaxLabels, len(all))
	}
	return all, nil
}

// A LabelFilter selects objects with a label of this name.
type LabelFilter struct {
	Name  string
	Value *string // and this value; nil means any
}

// MatchesAny reports whether labels contains one that the filter selects.
func (f LabelFilter) MatchesAny(labels []Label) bool {
	return slices.ContainsFunc(labels, func(l Label) bool { return l.Name == f.Name && (f.Value == nil || l.Value == *f.Value) })
}

// ValidateLabelFilters returns INVALID_INPUT for filters that no label can match.
func ValidateLabelFilters(filters []LabelFilter) error {
	labels := make([]Label, len(filters))
	for i, f := range filters {
		labels[i].Name = f.Name
		if f.Value != nil {
			labels[i].Value = *f.Value
		}
	}
	return ValidateLabels(labels)
}

package syncs

import "testing"

func TestHintsThatNobodyReceivesAreOne(t *testing.T) {
	h := NewHint()
	before := h.Take()
	h.Send()
	h.Send()
	if first, second := h.Take(), h.Take(); before || !first || second {
		t.Errorf("sent: %t before, then %t and %t", before, first, second)
	}
}

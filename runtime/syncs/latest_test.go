package syncs

import "testing"

func TestValuePublishesChanges(t *testing.T) {
	var v Latest[int]
	v.Set(1)
	got, changed := v.Get()
	v.Set(1)
	select {
	case <-changed:
		t.Error("an equal value is a change")
	default:
	}
	v.Set(2)
	<-changed
	if next, _ := v.Get(); got != 1 || next != 2 {
		t.Errorf("%d, then %d", got, next)
	}
}

func TestHintsThatNobodyReceivesAreOne(t *testing.T) {
	h := NewHint()
	before := h.Take()
	h.Send()
	h.Send()
	if first, second := h.Take(), h.Take(); before || !first || second {
		t.Errorf("sent: %t before, then %t and %t", before, first, second)
	}
}

package timing

import (
	"slices"
	"sync"
	"testing"
	"time"
)

func TestBuckets(t *testing.T) {
	h := New(time.Millisecond, time.Second)
	for _, took := range []time.Duration{-time.Hour, 0, time.Millisecond, time.Millisecond + 1, time.Second, time.Second + 1, time.Hour} {
		h.Add(took)
	}
	r := h.Read()
	if want := []int64{3, 2, 2}; !slices.Equal(r.Counts, want) {
		t.Errorf("counts %v, want %v", r.Counts, want)
	}
	if want := time.Hour + 2*time.Second + 2*time.Millisecond + 2; r.Sum != want || r.Count() != 7 {
		t.Errorf("%d took %v, want 7 and %v", r.Count(), r.Sum, want)
	}
	h.Add(time.Hour)
	if r.Count() != 7 {
		t.Error("a reading changed after it was made")
	}
}

func TestEmpty(t *testing.T) {
	h := New()
	h.Add(time.Second)
	if r := h.Read(); r.Count() != 1 || len(r.Counts) != 1 {
		t.Errorf("%+v", r)
	}
}

func TestConcurrentCounts(t *testing.T) {
	h := New(time.Microsecond)
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			for range 1000 {
				h.Add(time.Second)
				h.Read()
			}
		})
	}
	all.Wait()
	if r := h.Read(); r.Count() != 8000 || r.Sum != 8000*time.Second {
		t.Errorf("%d, %v", r.Count(), r.Sum)
	}
}

func BenchmarkAdd(b *testing.B) {
	h := New(time.Microsecond, 10*time.Microsecond, 100*time.Microsecond, time.Millisecond, 10*time.Millisecond, 100*time.Millisecond, time.Second)
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			h.Add(3 * time.Millisecond)
		}
	})
}

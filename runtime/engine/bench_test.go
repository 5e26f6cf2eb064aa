package engine

import "testing"

func BenchmarkTrue(b *testing.B) {
	bed := newBed(b)
	bed.environment(b, "a", 1)
	r := bed.claim(b, "a")
	for b.Loop() {
		bed.run(b, r.ID, "true")
	}
}

func BenchmarkClaimAndRelease(b *testing.B) {
	bed := newBed(b)
	bed.environment(b, "a", 20)
	for b.Loop() {
		r := bed.claim(b, "a")
		if _, err := bed.Release(b.Context(), r.ID); err != nil {
			b.Fatal(err)
		}
	}
}

package engine

import (
	"fmt"
	"testing"

	"github.com/rockpool/rockpool/runtime"
	"github.com/rockpool/rockpool/test/wait"
)

func BenchmarkTrue(b *testing.B) {
	bed := newBed(b)
	bed.environment(b, "a", 1)
	r := bed.claim(b, "a")
	for b.Loop() {
		bed.run(b, r.ID, "true")
	}
}

// BenchmarkClaimAndRelease must take as long in a large pool as in a small one.
func BenchmarkClaimAndRelease(b *testing.B) {
	for _, size := range []int{10, 500} {
		b.Run(fmt.Sprint(size), func(b *testing.B) {
			bed := newBed(b)
			bed.environment(b, "a", size)
			wait.For(b, "all are idle", func() bool {
				status, _ := bed.Environments.PoolStatus(runtime.Environment{ID: "a"})
				return status.Idle == size
			})
			b.ReportAllocs()
			for b.Loop() {
				r := bed.claim(b, "a")
				if _, err := bed.Runners.Release(asServer(b), r.ID); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

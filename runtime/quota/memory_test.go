package quota

import (
	"errors"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/rockpool/rockpool/runtime"
)

// TestTenantsShareMemory checks that one tenant gets half, and the next one half of the rest. A refusal
// names what it is for and the limit. Freed memory is for all.
func TestTenantsShareMemory(t *testing.T) {
	m := NewMemory(1 << 20)
	all := map[runtime.TenantID][]*Kept{}
	fill := func(id runtime.TenantID) (n int) {
		for {
			k, err := m.Keep(id, 1<<10, "a ticket")
			if err != nil {
				var e *runtime.Error
				if !errors.As(err, &e) || e.Code != runtime.CodeQuotaExceeded || e.Exceeded == nil || e.Exceeded.Quota != "memory" ||
					!strings.Contains(e.Message, "a ticket") || !strings.Contains(e.Message, "1024 KiB") {
					t.Errorf("refused with %+v", err)
				}
				return n
			}
			all[id] = append(all[id], k)
			n++
		}
	}
	if first, second := fill("a"), fill("b"); first != 512 || second != 256 {
		t.Errorf("the first got %d KiB, the second %d", first, second)
	}
	for _, k := range all["a"] {
		k.Free()
		k.Free()
	}
	for _, k := range all["b"] {
		k.Shrink(512)
		k.Free()
	}
	if used, limit := m.Usage(); used != 0 || limit != 1<<20 || len(m.bound.has) != 0 {
		t.Errorf("%d of %d are used by %v", used, limit, m.bound.has)
	}
	if _, err := m.Keep("a", 1<<20, "an environment"); runtime.CodeOf(err) != runtime.CodeQuotaExceeded {
		t.Errorf("more than the share at once: got %v, want QUOTA_EXCEEDED", err)
	}
	m.Adopt("a", 4<<20)
	for range 2 {
		if _, err := m.Keep("c", Small/2, "a ticket"); err != nil {
			t.Errorf("a tenant without much: %v", err)
		}
	}
	if _, err := m.Keep("c", 1, "a ticket"); runtime.CodeOf(err) != runtime.CodeQuotaExceeded {
		t.Errorf("beyond the limit and Small: got %v, want QUOTA_EXCEEDED", err)
	}
	if n := m.Reserve(1 << 30); n != 1<<18 {
		t.Errorf("a cache got %d bytes", n)
	}
	var none *Memory
	k, err := none.Keep("a", 1<<40, "anything")
	k.Free()
	if err != nil || none.Adopt("a", 1) != nil || none.Reserve(7) != 7 {
		t.Error("a nil Memory has a limit")
	}
}

// TestMemoryWalk checks that the sums are those of what is kept, after any series of calls.
func TestMemoryWalk(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m := NewMemory(rapid.Int64Range(0, 1<<20).Draw(t, "limit"))
		kept := map[*Kept]bool{}
		for range rapid.IntRange(1, 50).Draw(t, "steps") {
			id := runtime.TenantID(rapid.SampledFrom([]string{"a", "b", "c"}).Draw(t, "tenant"))
			n := rapid.Int64Range(0, 1<<18).Draw(t, "bytes")
			switch rapid.IntRange(0, 4).Draw(t, "step") {
			case 0:
				if k, err := m.Keep(id, n, "a thing"); err == nil {
					kept[k] = true
				}
			case 1:
				kept[m.Adopt(id, n)] = true
			case 2:
				for k := range kept {
					_ = k.Grow(n, "a thing")
					break
				}
			case 3:
				for k := range kept {
					k.Shrink(n)
					break
				}
			default:
				for k := range kept {
					k.Free()
					delete(kept, k)
					break
				}
			}
			sum, of := int64(0), map[runtime.TenantID]int64{}
			for k := range kept {
				sum += k.bytes
				of[k.tenant] += k.bytes
			}
			if m.bound.taken != sum {
				t.Fatalf("%d are used, and %d kept", m.bound.taken, sum)
			}
			for id, n := range of {
				if m.bound.has[id] != n {
					t.Fatalf("%s has %d, and %d kept", id, m.bound.has[id], n)
				}
			}
		}
	})
}

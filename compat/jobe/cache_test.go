package jobe

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/rockpool/rockpool/runtime"
)

const filled = 1000 - cachedBeside - 1 // of a file with an id of one letter that takes 1000 bytes

func has(c *cache, tenant runtime.TenantID, ids ...string) (there string) {
	for _, id := range ids {
		if _, ok := c.get(tenant, id); ok {
			there += id
		}
	}
	return there
}

func TestCacheEvictsTheLeastRecentlyUsed(t *testing.T) {
	c := newCache(3000)
	for _, id := range []string{"a", "b", "c"} {
		c.put("x", id, make([]byte, filled))
	}
	has(c, "x", "a") // used
	c.put("x", "d", make([]byte, filled))
	if got := has(c, "x", "a", "b", "c", "d"); got != "acd" {
		t.Errorf("there are %s, want acd", got)
	}
	if c.put("x", "e", make([]byte, 3000)) {
		t.Error("a file is larger than the cache")
	}
	c.put("x", "a", []byte("new"))
	if content, _ := c.get("x", "a"); string(content) != "new" {
		t.Errorf("put again: %q", content)
	}
}

// A tenant sees only its own files. One that floods the cache loses its own.
func TestCacheByTenant(t *testing.T) {
	c := newCache(4000)
	c.put("x", "a", make([]byte, filled))
	if has(c, "y", "a") != "" {
		t.Error("another tenant sees the file")
	}
	for i := range 50 {
		c.put("y", string(rune('A'+i)), make([]byte, filled))
	}
	if has(c, "x", "a") != "a" || has(c, "y", "A", "o", "p", "q", "r") != "pqr" {
		t.Errorf("x has %q, y has %q", has(c, "x", "a"), has(c, "y", "A", "o", "p", "q", "r"))
	}
	if !c.put("z", "b", make([]byte, 3*filled)) || has(c, "z", "b") != "b" {
		t.Error("a file that was put just now is gone")
	}
}

// The cache's bytes are those of its files after any sequence of puts and evictions.
func TestCacheCounts(t *testing.T) {
	c := newCache(20_000)
	for range 5000 {
		tenant := runtime.TenantID(fmt.Sprint(rand.IntN(4)))
		c.put(tenant, fmt.Sprint(rand.IntN(30)), make([]byte, rand.IntN(4000)))
	}
	all := int64(0)
	for _, s := range c.tenants {
		of := int64(0)
		for _, e := range s.files {
			of += e.Value.(*cachedFile).size()
		}
		if s.bytes != of || s.order.Len() != len(s.files) || of == 0 {
			t.Errorf("a tenant counts %d bytes and %d files, has %d and %d", s.bytes, s.order.Len(), of, len(s.files))
		}
		all += of
	}
	if c.bytes != all || all > c.most {
		t.Errorf("it counts %d bytes, has %d, of at most %d", c.bytes, all, c.most)
	}
}

func TestContents(t *testing.T) {
	for text, want := range map[string]string{`"aGVsbG8="`: "hello", `"aGVsbG8"`: "hello", `"aGVs\nbG8 ="`: "hello", `""`: "", `1234`: "\xd7\x6d\xf8"} {
		if got, refused := fileContents("x", []byte(`{"file_contents": `+text+`}`)); refused != nil || string(got) != want {
			t.Errorf("%s: %q, %v", text, got, refused)
		}
	}
	for body, why := range map[string]string{
		``: "put: missing file_contents parameter", `[]`: "put: missing file_contents parameter", `{}`: "put: missing file_contents parameter",
		`{"file_contents": null}`: "put: missing file_contents parameter", `{"file_contents": ["a"]}`: "put: missing file_contents parameter",
		`{"file_contents": "a"}`: "put: contents of file x are not valid base-64", `{"file_contents": "aGV$bG8="}`: "put: contents of file x are not valid base-64",
		`{"file_contents": "aGVsbG8=="}`: "put: contents of file x are not valid base-64",
	} {
		if got, err := fileContents("x", []byte(body)); statusOf(err) != 400 || err.Error() != why {
			t.Errorf("%s: %q, %v", body, got, err)
		}
	}
}

// statusOf returns the status of a refusal; 0 if err is none.
func statusOf(err error) int {
	if refused, ok := errors.AsType[*refusal](err); ok {
		return refused.status
	}
	return 0
}

func FuzzContents(f *testing.F) {
	f.Add([]byte(`{"file_contents": "aGVsbG8="}`))
	f.Fuzz(func(t *testing.T, body []byte) {
		if content, err := fileContents("x", body); err != nil && (statusOf(err) != 400 || content != nil) || len(content) > len(body) {
			t.Fatalf("%q, %v", content, err)
		}
	})
}

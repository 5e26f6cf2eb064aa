package helper

import (
	"encoding/json"
	"path/filepath"
	"strings"
	"testing"
)

func TestNames(t *testing.T) {
	for id, want := range map[string]bool{
		"a": true, "01a1fafa-4baf-7bc8-9f9d-88a98e2b4ed1": true, "A_b-9": true, strings.Repeat("a", 64): true,
		"": false, "-a": false, "_a": false, ".": false, "..": false, "a/b": false, "a b": false, "a\x00": false, "ä": false, strings.Repeat("a", 65): false,
	} {
		if ValidID(id) != want {
			t.Errorf("ValidID(%q) is %v", id, !want)
		}
	}
	for group, want := range map[string]bool{
		"/rockpool": true, "/rockpool/test": true, "/rockpool/a/b/c/d": true,
		"": false, "/": false, "rockpool": false, "/other": false, "/rockpool/": false, "/rockpool/..": false,
		"/rockpool/../x": false, "/rockpool//x": false, "/rockpoolx": false, "/rockpool/a/b/c/d/e": false,
	} {
		if ValidParent(group) != want {
			t.Errorf("ValidParent(%q) is %v", group, !want)
		}
	}
}

func TestRead(t *testing.T) {
	good := `{"id":"a","stateDir":"/x","cgroup":"/rockpool/a"}`
	if q, err := Read(strings.NewReader(good)); err != nil || q.ID != "a" {
		t.Errorf("%+v, %v", q, err)
	}
	for _, text := range []string{
		"", "{}", "null", good + "{}", good + "x", good[:20],
		`{"id":"a","stateDir":"/x","cgroup":"/rockpool/a","more":1}`,
		`{"id":"../a","stateDir":"/x","cgroup":"/rockpool/../a"}`,
		`{"id":"a","stateDir":"x","cgroup":"/rockpool/a"}`,
		`{"id":"a","stateDir":"/","cgroup":"/rockpool/a"}`,
		`{"id":"a","stateDir":"/x/../y","cgroup":"/rockpool/a"}`,
		`{"id":"a","stateDir":"/x","cgroup":"/rockpool/b"}`,
		`{"id":"a","stateDir":"/x","cgroup":"/a"}`,
		`{"id":"a","stateDir":"/x","cgroup":"/process_api/a"}`,
		`{"id":"a","stateDir":"/x","cgroup":"/rockpool/../a"}`,
		`{"id":"` + strings.Repeat("a", MaxMessage) + `"}`,
	} {
		if q, err := Read(strings.NewReader(text)); err == nil {
			t.Errorf("%.60q is read as %+v", text, q)
		}
	}
}

func FuzzRead(f *testing.F) {
	f.Add(`{"id":"a","stateDir":"/x","cgroup":"/rockpool/a","spec":{"ociVersion":"1.3.0"}}`)
	f.Fuzz(func(t *testing.T, text string) {
		q, err := Read(strings.NewReader(text))
		if err != nil {
			return
		}
		if below := filepath.Join("/sys/fs/cgroup/pids", q.Cgroup); !strings.HasPrefix(below, "/sys/fs/cgroup/pids/rockpool/") {
			t.Errorf("its groups would be %s", below)
		}
		if state := filepath.Join(q.StateDir, q.ID); filepath.Dir(state) != q.StateDir {
			t.Errorf("its state would be %s", state)
		}
		if _, err := json.Marshal(q); err != nil {
			t.Error(err)
		}
		if q.Spec != nil {
			_, _ = Limits(q.Spec)
		}
	})
}

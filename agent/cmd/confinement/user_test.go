package confinement

import "testing"

func TestImageUserLookup(t *testing.T) {
	const passwd = "root:x:0:0::/:/bin/sh\napp:x:1234:1235::/:/bin/sh\nbroken\nwheel:x:7:0::/:/bin/sh\nfar:x:70000:70000::/:/bin/sh\n"
	const group = "root:x:0:\nstaff:x:50:app\n"
	for account, want := range map[string]struct {
		uid, gid uint32
		fails    bool
	}{
		"app": {1234, 1235, false}, "1234": {1234, 1235, false}, "1234:50": {1234, 50, false}, "app:staff": {1234, 50, false},
		"4321": {4321, 0, false}, "65534": {65534, 0, false}, "wheel": {7, 0, false}, "root": {0, 0, false}, "0": {0, 0, false},
		"nobody": {0, 0, true}, "app:nobody": {0, 0, true}, "far": {70000, 70000, false}, "59999": {0, 0, true}, "app:60000": {0, 0, true}, "4294967295": {0, 0, true}, "": {0, 0, true}, "-1": {0, 0, true},
	} {
		uid, gid, err := lookUp(account, passwd, group)
		if uid != want.uid || gid != want.gid || (err != nil) != want.fails {
			t.Errorf("%q is %d:%d, %v", account, uid, gid, err)
		}
	}
}

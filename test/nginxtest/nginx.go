// Package nginxtest puts nginx in front of a server, since proxies change what clients get. Its
// answers come over the network, so a test sees what a user behind nginx sees.
package nginxtest

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/rockpool/rockpool/test/need"
	"github.com/rockpool/rockpool/test/port"
	"github.com/rockpool/rockpool/test/wait"
)

// configuration has the directory of nginx, its address, the server's URL, and more of its location.
const configuration = `
daemon off;
master_process off;
pid %[1]s/pid;
error_log stderr;
events {}
http {
	access_log off;
	client_body_temp_path %[1]s; proxy_temp_path %[1]s; fastcgi_temp_path %[1]s; uwsgi_temp_path %[1]s; scgi_temp_path %[1]s;
	server {
		listen %[2]s;
		location / {
			proxy_pass %[3]s;
			%[4]s
		}
	}
}
`

// Before starts nginx in front of a server, and returns its URL. It ends with the test. location is more
// of the configuration, for example "proxy_read_timeout 3s;".
func Before(t testing.TB, server, location string) (url string) {
	t.Helper()
	need.Sandboxes(t)
	program, err := exec.LookPath("nginx")
	if err != nil {
		program, err = exec.LookPath("/usr/sbin/nginx")
	}
	if err != nil {
		need.Lacks(t, "this machine has no nginx; scripts/needs tests installs it")
	}
	dir, address := t.TempDir(), port.Spare(t)
	file := filepath.Join(dir, "nginx.conf")
	if err := os.WriteFile(file, fmt.Appendf(nil, configuration, dir, address, server, location), 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(program, "-p", dir, "-c", file, "-e", "stderr")
	cmd.Stderr = os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Signal(syscall.SIGTERM)
		_ = cmd.Wait()
	})
	wait.For(t, "nginx listens", func() bool {
		conn, err := net.Dial("tcp", address)
		if err == nil {
			_ = conn.Close()
		}
		return err == nil
	})
	return "http://" + address
}

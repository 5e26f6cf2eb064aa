package isolation

import (
	"strings"
	"testing"

	"github.com/rockpool/rockpool/test/e2e/bed"
)

// TestE2EProgramsWork runs common programs that this machine has in runners: the filter of system
// calls allows what they need. Each prints ok.
func TestE2EProgramsWork(t *testing.T) {
	t.Parallel()
	b := bed.Open(t)
	b.Put(t, object{"id": "programs", "poolSize": 1, "resources": object{"memoryMiB": 1024, "processes": 256, "workspaceMiB": 256}})
	runner := b.Claim(t, "programs")
	ran := 0
	for _, test := range popular {
		got := b.Shell(t, runner, "command -v "+test.needs+" >/dev/null || { echo absent; exit; }\nmkdir /workspace/d && cd /workspace/d || exit\n"+test.script)
		switch said := strings.TrimSpace(got.Stream("STDOUT")); {
		case said == "absent":
			t.Logf("%s isn't there", test.needs)
		case said != "ok" || got.Outcome != "EXITED" || *got.ExitCode != 0:
			t.Errorf("%s: %s %s, printed %q and %q", test.needs, got.Outcome, got.Signal, said, got.Stream("STDERR"))
		default:
			ran++
		}
		b.Shell(t, runner, "rm -rf /workspace/d")
	}
	if ran < 10 {
		t.Errorf("%d of these programs are here: too few to say anything", ran)
	}
}

var popular = []struct{ needs, script string }{
	{"python3", `python3 - <<'E'
import asyncio, mmap, multiprocessing, os, selectors, shutil, signal, socket, sqlite3, subprocess, threading, time
with multiprocessing.Pool(2) as p: assert p.map(abs, range(-3, 0)) == [3, 2, 1]
db = sqlite3.connect("p.db"); db.execute("pragma journal_mode=wal"); db.execute("create table a(b)"); db.commit()
async def f():
    p = await asyncio.create_subprocess_exec("cat", stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    return await p.communicate(b"x" * 100000)
assert len(asyncio.run(f())[0]) == 100000
s = socket.create_server(("127.0.0.1", 0)); c = socket.create_connection(s.getsockname()); d = s.accept()[0]
c.sendall(b"hi"); assert d.recv(9) == b"hi"
a, z = socket.socketpair(); socket.send_fds(a, [b"f"], [0]); assert socket.recv_fds(z, 9, 1)[0] == b"f"
m = os.memfd_create("m"); os.truncate(m, 4096); mmap.mmap(m, 4096)[:2] = b"ab"
with open("big", "wb") as f: f.truncate(1 << 20); os.posix_fallocate(f.fileno(), 0, 4096); os.fsync(f.fileno())
with open("big") as f, open("copy", "w") as g:
    assert os.sendfile(g.fileno(), f.fileno(), 0, 4096) == 4096 and os.copy_file_range(f.fileno(), g.fileno(), 4096) == 4096
os.makedirs("t/u"); shutil.copytree("t", "v"); shutil.rmtree("t")
os.mkfifo("fifo"); os.symlink("fifo", "link"); os.setpriority(os.PRIO_PROCESS, 0, 19); os.sched_setaffinity(0, os.sched_getaffinity(0))
signal.signal(signal.SIGALRM, lambda *_: None); signal.setitimer(signal.ITIMER_REAL, 0.01); signal.pause()
os.sync(); os.waitpid(os.fork() or os._exit(0), 0); selectors.DefaultSelector().close(); os.getrandom(8); os.eventfd(1)
t = [threading.Thread(target=time.sleep, args=(0.01,)) for _ in range(20)]; [x.start() for x in t]; [x.join() for x in t]
print("ok")
E`},
	{"node", `node -e '
const { Worker } = require("worker_threads"), fs = require("fs"), http = require("http"), { execSync } = require("child_process")
fs.writeFileSync("n", "x"); fs.watch(".").close(); execSync("true"); require("crypto").randomBytes(8)
const s = http.createServer((q, r) => r.end("hi")).listen(0, "127.0.0.1", async () => {
  await (await fetch("http://127.0.0.1:" + s.address().port)).text()
  new Worker("1", { eval: true }).on("exit", () => { console.log("ok"); process.exit(0) })
})'`},
	{"gcc", `cat >c.c <<'E'
#include <pthread.h>
#include <semaphore.h>
#include <stdio.h>
#include <sys/msg.h>
#include <sys/shm.h>
static void *f(void *s) { sem_post(s); return 0; }
int main(void) {
	sem_t s; sem_init(&s, 0, 0); pthread_t t; pthread_create(&t, 0, f, &s); sem_wait(&s); pthread_join(t, 0);
	int m = shmget(IPC_PRIVATE, 4096, 0600); if (shmat(m, 0, 0) == (void *)-1 || msgget(IPC_PRIVATE, 0600) < 0) return 1;
	shmctl(m, IPC_RMID, 0); puts("ok"); return 0;
}
E
gcc -O2 -g -pthread -o c c.c && ./c`},
	{"make", `printf 'all: a b\na b:\n\techo $@ >$@\n' >Makefile && make -sj2 && grep -q b b && echo ok`},
	{"java", `cat >T.java <<'E'
import java.nio.channels.FileChannel;
public class T { public static void main(String[] a) throws Exception {
	Thread t = new Thread(() -> {}); t.start(); t.join(); new ProcessBuilder("true").start().waitFor();
	FileChannel.open(java.nio.file.Path.of("T.java")).map(FileChannel.MapMode.READ_ONLY, 0, 4); System.gc(); System.out.println("ok"); } }
E
java -Xmx128m T.java`},
	// Not a complete build: with an empty cache it takes eleven seconds.
	{"/usr/local/go/bin/go", `printf 'package main\nfunc main() {}\n' >g.go && /usr/local/go/bin/go list std >/dev/null && /usr/local/go/bin/go tool compile -p main g.go && /usr/local/go/bin/gofmt g.go >/dev/null && echo ok`},
	{"git", `git init -q r && cd r && git config user.email a@b && git config user.name a && echo 1 >f && git add f && git commit -qm ok && git gc -q && git clone -q . ../r2 && git -C ../r2 log --format=%s`},
	{"sqlite3", `sqlite3 d.db 'pragma journal_mode=wal; create table t(a); insert into t values(1); vacuum; pragma integrity_check' | tail -1`},
	{"tar", `mkdir -p a/b && echo ok >a/b/c && ln a/b/c a/d && ln -s d a/e && tar --xattrs -czf a.tgz a && rm -r a && tar -xzf a.tgz && cat a/e`},
	{"rsync", `mkdir -p s && echo ok >s/f && rsync -aHAX s/ t/ && cat t/f`},
	{"zstd", `head -c 1M /dev/urandom >z && zstd -qT2 z && zstd -qdc z.zst | cmp - z && echo ok`},
	{"perl", `perl -e 'my $p = fork // die; exit 0 unless $p; waitpid $p, 0; open my $l, ">", "l"; flock $l, 2; print "ok\n"'`},
	{"ruby", `ruby -rsocket -e 'Thread.new { sleep 0.01 }.join; Process.wait(spawn("true")); TCPServer.new("127.0.0.1", 0).close; puts :ok'`},
	{"bash", `bash -c 'set -m; sleep 60 & kill -STOP %1; kill -CONT %1; kill %1; wait; coproc cat; echo ok >&${COPROC[1]}; read -u ${COPROC[0]} x; echo $x' 2>/dev/null`},
	{"script", `script -qec 'bash --norc -ic "sleep 60 & kill %1; stty -a >/dev/null" >/dev/null 2>&1; echo ok' /dev/null`},
	{"tmux", `export TMUX_TMPDIR=/tmp; tmux -f /dev/null new-session -d 'tmux wait-for -S up; sleep 60' && tmux wait-for up && tmux kill-server && echo ok`},
	{"vim", `echo o >v && vim -esN -u NONE -c '%s/$/k/' -c wq v; cat v`},
	{"openssl", `openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -keyout k -out c -subj /CN=x 2>/dev/null && openssl verify -CAfile c c | sed 's/.*OK/ok/'`},
	{"ssh-keygen", `ssh-keygen -qt ed25519 -N '' -f key && echo ok`},
	{"curl", `echo ok >w && curl -s file://$PWD/w`},
	{"setarch", `setarch -R echo ok`},
	{"taskset", `taskset -c 0 nice ionice -c 3 chrt -b 0 timeout 5 flock /tmp/l setsid -w echo ok`},
	{"find", `mkdir -p x/y && touch x/y/z && find x | sort --parallel=2 | xargs -P 2 -n 1 stat -f >/dev/null && cp -a --sparse=always x x2 &&
truncate -s 1M x/t && fallocate -l 4096 x/u && dd if=/dev/zero of=x/v bs=4k count=4 conv=fsync 2>/dev/null && df . >/dev/null && sync && mv x/u x2/ && echo ok`},
}

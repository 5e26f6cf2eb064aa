# The zygote: an interpreter that has modules loaded, and forks for each command that it is asked
# for. It is run by the image's own interpreter, with -c, as a user that commands can't reach, with
# the capabilities to change users and groups. It never runs user code: a child does, once it
# has given up all that and the agent has checked that. Until then nothing can be imported that isn't
# loaded: the files of a runner are its user's.
#
# The socket is descriptor 3. A message is its length (4 bytes, big endian) and fields that are
# separated by NUL. zygote.go is the other side.
import _socket, os, sys, time

rockpool = type(sys)('rockpool')

def _setup(r):
    import atexit, ctypes, fcntl, gc, resource
    atexit.register(_finish, r)
    r.status = r.trace = None
    r.control = _socket.socket(fileno=3)
    r.libc = ctypes.PyDLL(None, use_errno=True)  # which keeps the interpreter's lock
    r.python = ctypes.pythonapi
    x86 = os.uname().machine == 'x86_64'
    SYS_clone, SYS_capset = (56, 126) if x86 else (220, 91)
    no_capabilities = ctypes.c_long(SYS_capset), (ctypes.c_uint32 * 2)(0x20080522, 0), (ctypes.c_uint32 * 6)()
    r.base = dict(os.environb)

    def prctl(option, a=0):
        word = ctypes.c_ulong
        return r.libc.prctl(ctypes.c_int(option), word(a), word(0), word(0), word(0))

    def send(*fields):
        body = b'\0'.join(f if isinstance(f, bytes) else str(f).encode('utf-8', 'backslashreplace') for f in fields)
        r.control.sendall(len(body).to_bytes(4, 'big') + body)

    def receive():
        data, fds = b'', []
        while len(data) < 4 or len(data) < 4 + int.from_bytes(data[:4], 'big'):
            more, extra, _, _ = r.control.recvmsg(1 << 16, _socket.CMSG_SPACE(5 * 4))
            if not more:
                os._exit(0)  # the agent has ended
            for level, kind, rights in extra:
                if level == _socket.SOL_SOCKET and kind == _socket.SCM_RIGHTS:
                    fds += memoryview(rights[:len(rights) // 4 * 4]).cast('i').tolist()
            data += more
        return data[4:].split(b'\0'), fds

    # glibc stores the thread's id here. Its own fork would update it; clone does it for us.
    address = ctypes.c_void_p()
    thread = 0
    if prctl(40, ctypes.addressof(address)) == 0 and address.value:  # PR_GET_TID_ADDRESS
        thread = address.value

    def fork():
        # A sibling (CLONE_PARENT): the agent waits for it, not the zygote.
        flags = 0x8000 | 17 | (0x01000000 | 0x00200000 if thread else 0)
        word = ctypes.c_ulong
        last = (word(thread), word(0)) if x86 else (word(0), word(thread))
        r.python.PyOS_BeforeFork()
        pid = r.libc.syscall(ctypes.c_long(SYS_clone), word(flags), word(0), word(0), *last)
        if pid == 0:
            r.python.PyOS_AfterFork_Child()
        else:
            r.python.PyOS_AfterFork_Parent()
        return pid if pid >= 0 else -ctypes.get_errno()

    def close_above(last):
        for fd in os.listdir('/proc/self/fd'):
            try:
                if int(fd) > last:
                    os.close(int(fd))
            except OSError:
                pass  # that of the list itself

    def become():
        # Waits for a command, and takes everything that one has from its first instruction on. The
        # order is that of package launch: once it has the user, commands of that user can stop it.
        try:
            os.setsid()
            _rehearse(r)
            send('waits')
            request, fds = receive()
            directory, user, mark, terminal = request.pop(0), int(request.pop(0)), int(request.pop(0)), request.pop(0)
            for fd in range(3):
                os.dup2(fds[fd], fd)
            if terminal == b'1':
                fcntl.ioctl(0, 0x540E, 1)  # TIOCSCTTY
            for which, extra in ((resource.RLIMIT_CPU, 1), (resource.RLIMIT_FSIZE, 0), (resource.RLIMIT_NOFILE, 0), (resource.RLIMIT_NPROC, 0)):
                limit = int(request.pop(0))
                if limit > 0:
                    soft, hard = resource.getrlimit(which)
                    least = lambda a: a if hard == resource.RLIM_INFINITY else min(a, hard)
                    resource.setrlimit(which, (least(limit), least(limit + extra)))
            os.setgroups([user, mark])
            os.setresgid(user, user, user)
            os.setresuid(user, user, user)  # its saved one was root: this drops permitted, effective and ambient capabilities
            if r.libc.syscall(*no_capabilities) != 0:
                raise OSError(ctypes.get_errno(), 'capset')
            os.chdir(directory)
            close_above(3)
            prctl(4, 1)  # PR_SET_DUMPABLE, as after an exec
            sys.meta_path[:] = r.finders
        except BaseException as e:
            send('failed', repr(e)[:200])
            os._exit(253)
        send('ready')
        receive()  # it goes once the agent has checked it
        r.control.close()
        return request

    def serve():
        # Returns in a child only.
        while True:
            _, (link,) = receive()
            pid = fork()
            if pid == 0:
                os.dup2(link, 3)
                os.close(link)
                return
            os.close(link)
            send('forked', pid)

    def refuse(*why):
        send('failed', *why)
        os._exit(1)

    def files():
        # Descriptors, and temporary files that are the zygote's alone.
        found = {'/proc/self/fd/' + fd for fd in os.listdir('/proc/self/fd')}
        found = {fd for fd in found if os.path.exists(fd)}
        for directory in ('/tmp', '/var/tmp', '/dev/shm'):
            for file in os.scandir(directory) if os.path.isdir(directory) else ():
                stat = file.stat(follow_symlinks=False)
                if stat.st_uid == os.geteuid() and not stat.st_mode & 0o77:
                    found.add(file.path)
        return found

    def unforkable(earlier):
        # What a module has made that a child can't have for itself. None means nothing.
        if len(os.listdir('/proc/self/task')) != 1:
            return 'starts threads, which no child has'
        with open('/proc/self/maps') as maps:
            for line in maps:
                permissions = line.split()[1]
                if permissions[1] == 'w' and permissions[3] == 's':
                    return 'has memory that all children would share'
        for file in files() - earlier:
            if file.startswith('/proc'):
                return 'keeps %s open, which children close' % os.readlink(file)
            return 'leaves %s, which commands cannot use or remove: a variable of the environment may choose another directory' % file

    def load(path, modules):
        # What the zygote has is for its children alone, not for programs that a module executes.
        prctl(47, 4)  # PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL
        if sys.implementation.name != 'cpython' or not (3, 8) <= sys.version_info < (3, 14):
            refuse('%s %d.%d is not supported: CPython 3.8 to 3.13 is' % (sys.implementation.name, *sys.version_info[:2]))
        try:
            glibc = [int(n) for n in os.confstr('CS_GNU_LIBC_VERSION').split()[1].split('.')]
        except (ValueError, OSError):
            glibc = [0]
        if glibc < [2, 25]:
            refuse('its C library is not glibc 2.25 or later, with which alone it can fork: take an image that is newer, or is not Alpine')
        if os.path.realpath(sys.executable) != os.path.realpath(path):
            refuse('it is a wrapper of %s: put its directory first in PATH' % sys.executable)
        if sys.path[:1] == ['']:  # the directory of -c
            del sys.path[0]
        earlier = files()
        for name in modules:
            try:
                __import__(name)
            except BaseException as e:
                refuse(name, 'cannot be loaded: %s: %s' % (type(e).__name__, e))
            why = unforkable(earlier)
            if why:
                refuse(name, 'cannot be loaded before a command: its import %s' % why)
        r.modules, r.loaded = modules, set(sys.modules)
        packages = sorted({m.partition('.')[0] for m in r.loaded} - {'__main__', 'sys', 'builtins'})
        gc.collect()
        gc.freeze()
        with open('/proc/self/statm') as f:
            _, resident, shared = f.read().split()[:3]
        r.finders, sys.meta_path[:] = sys.meta_path[:], []
        os.setresuid(-1, -1, 0)  # version 1 of cgroups: root may move those that have it as a saved one
        send('ready', '%d.%d' % sys.version_info[:2], (int(resident) - int(shared)) * os.sysconf('SC_PAGE_SIZE'), *packages)

    r.serve, r.become, r.load, r.receive = serve, become, load, receive

def _rehearse(r):
    # Does what a start does, with a program of ours, so that a command finds the pages copied and
    # mapped that it needs.
    path = sys.path[:]
    program = 'import ' + ', '.join(['os', 'sys'] + r.modules) + _usual
    env = [k + b'=' + v for k, v in r.base.items()]
    main, source, name, _ = _adopt(r, [b'c', os.fsencode(sys.executable), b'3', b'', b'-c', program.encode()] + env)
    exec(compile(source, name, 'exec', dont_inherit=True), main.__dict__)
    sys.path[:] = path
    _reseed()
    os.setgroups(os.getgroups())
    os.setresgid(-1, -1, -1)
    os.setresuid(-1, -1, -1)

# What many programs do.
_usual = """
class A:
    def __init__(self, n=1, *a, **k): self.n = n
    def __repr__(self): return f'{self.n:>3}{2.5:.1f}{"a"!r}'
def f(x, y=2):
    with open('/dev/null') as file:
        for line in file: pass
    return [i ** 2 for i in range(x) if i % y], {str(i): float(i) for i in (1, 2)}, sorted({3, 1}), 'a b'.split()
try: raise ValueError(f(3), A(4), '%s %d %.2f %r' % (A(), 1, round(2 / 3, 2), [b'x', None, True]))
except ValueError as e: print('', str(e)[:0], sep='', end='', flush=True)
"""

def _environ(r, pairs):
    names = {p[0] for p in pairs}
    if b'LC_CTYPE' in r.base and b'LC_CTYPE' not in names:
        pairs.append((b'LC_CTYPE', r.base[b'LC_CTYPE']))  # the interpreter has set it itself (PEP 538)
    os.environb.clear()
    os.environb.update(pairs)
    if hasattr(sys.modules.get('posix'), 'environ'):
        sys.modules['posix'].environ.clear()
        sys.modules['posix'].environ.update(pairs)
    time.tzset()

def _finish(r):
    # The last function that runs at the end, where the interpreter would free all that the zygote has
    # loaded, and copy it for that. This frees what the program has made, and ends as it would.
    status = r.status
    if status is None:
        return
    try:
        sys.stdout.flush()
        sys.stderr.flush()
    except BaseException:
        return  # the interpreter itself reports it
    import gc, io, _weakref
    own = {'__main__': sys.modules.get('__main__')}
    for name in reversed(sys.modules):  # those that the program has added are the last ones
        if name in r.loaded:
            break
        own[name] = sys.modules[name]
    for name in own:
        sys.modules.pop(name, None)
    left = [_weakref.ref(m) for m in own.values() if issubclass(type(m), type(sys))]
    r.main = r.trace = m = own = sys.last_value = sys.last_traceback = sys.last_exc = None
    gc.collect()
    for module in left:
        names = {} if module() is None else object.__getattribute__(module(), '__dict__')
        for name in list(names):
            if name != '__builtins__':
                names[name] = None
    gc.collect()
    for o in gc.get_objects():
        if issubclass(type(o), (io.TextIOWrapper, io.BufferedWriter, io.BufferedRandom)):  # its __class__ may be code
            try:
                o.flush()
            except BaseException:
                pass
    r.libc.exit(status)

def _adopt(r, request):
    # What a cold start would have set from its arguments and its environment.
    decode = os.fsdecode
    form, executable, count = request.pop(0), decode(request.pop(0)), int(request.pop(0))
    argv = [decode(a) for a in request[:count]]
    _environ(r, [v.split(b'=', 1) for v in request[count:] if v])
    sys.executable = executable
    if hasattr(sys, '_base_executable'):
        sys._base_executable = executable
    if hasattr(sys, 'orig_argv'):
        sys.orig_argv = argv[:]
    main = type(sys)('__main__')
    main.__builtins__, main.__annotations__ = sys.modules['builtins'], {}
    main.__loader__ = sys.modules['_frozen_importlib'].BuiltinImporter
    sys.modules['__main__'] = main
    site = sys.modules.get('site')
    if site is not None and getattr(site, 'ENABLE_USER_SITE', None):
        site.USER_BASE = site.USER_SITE = None
        site.getusersitepackages()
    _streams()
    threading = sys.modules.get('threading')
    if threading is not None:
        threading.main_thread()._set_native_id()
    linecache = sys.modules.get('linecache')
    if linecache is not None:
        linecache.cache.pop('<string>', None)  # this program
        getattr(linecache, '_interactive_cache', {}).clear()
    logging = sys.modules.get('logging')
    if logging is not None:
        logging._startTime = time.time_ns() if isinstance(logging._startTime, int) else time.time()
    safe = getattr(sys.flags, 'safe_path', False)
    source, name, first = None, '<string>', ''
    if form == b'c':
        sys.argv, source = ['-c'] + argv[3:], argv[2]
    elif form == b'stdin':
        sys.argv, name = argv[1:] or [''], '<stdin>'
        source = b''
        while True:
            part = os.read(0, 1 << 16)
            if not part:
                break
            source += part
    elif form == b'm':
        sys.argv, source, first = ['-m'] + argv[3:], None, os.getcwd()
    else:
        sys.argv, path = argv[1:], argv[1]
        name = path if path[:1] == '/' or sys.version_info < (3, 9) else os.getcwd() + '/' + path
        first = os.path.dirname(os.path.realpath(path))
        try:
            with open(path, 'rb') as f:
                source = f.read()
        except OSError as e:
            sys.stderr.write("%s: can't open file %r: [Errno %d] %s\n" % (argv[0], name, e.errno, e.strerror))
            raise SystemExit(2)
        import _frozen_importlib_external as external
        main.__file__, main.__cached__ = name, None
        main.__loader__ = external.SourceFileLoader('__main__', name)
    if not safe:
        sys.path.insert(0, first)
    return main, source, name, argv[2] if form == b'm' else None

def _show(code, source):
    # From 3.13 on a traceback shows the lines of -c. The interpreter stores these lines in linecache:
    # 3.13.0 by file name, later versions by code object.
    linecache = sys.modules.get('linecache')
    if code.co_filename == '<string>' and hasattr(linecache, '_register_code'):
        linecache._register_code(code if hasattr(linecache, '_interactive_cache') else '<string>', source, '<string>')

def _streams():
    import io
    for fd, name, mode in ((0, 'stdin', 'r'), (1, 'stdout', 'w'), (2, 'stderr', 'w')):
        old = getattr(sys, name)
        unbuffered = mode == 'w' and old.write_through
        buffer = io.open(fd, mode + 'b', 0 if unbuffered else -1, closefd=False)
        raw = buffer if unbuffered else buffer.raw
        raw.name = '<' + name + '>'
        lines = not unbuffered and (raw.isatty() or fd == 2 and sys.version_info >= (3, 9))
        stream = io.TextIOWrapper(buffer, old.encoding, old.errors, '\n', lines, bool(unbuffered))
        stream.mode = mode
        setattr(sys, name, stream)
        setattr(sys, '__' + name + '__', stream)

def _reseed():
    # random has done it itself, after the fork.
    numpy = sys.modules.get('numpy.random')
    if numpy is not None:
        numpy.seed()
    process = sys.modules.get('multiprocessing.process')
    if process is not None:
        process.current_process().authkey = os.urandom(32)

_setup(rockpool)
rockpool.request = [field.decode() for field in rockpool.receive()[0]]
rockpool.load(rockpool.request[0], rockpool.request[1:])
rockpool.serve()
rockpool.request = rockpool.become()
try:
    rockpool.main, rockpool.source, rockpool.name, rockpool.module = _adopt(rockpool, rockpool.request)
    del _setup, _rehearse, _usual, _finish, _environ, _adopt, _streams, _reseed
    if rockpool.module is not None:
        import runpy
        runpy._run_module_as_main(rockpool.module)
    else:
        rockpool.code = compile(rockpool.source, rockpool.name, 'exec', dont_inherit=True)
        _show(rockpool.code, rockpool.source)
        exec(rockpool.code, rockpool.main.__dict__)
    rockpool.status = 0
except SystemExit as error:
    if error.code is None:
        rockpool.status = 0
    elif isinstance(error.code, int) and 0 <= error.code < 256:
        rockpool.status = int(error.code)
    raise
except BaseException as error:
    # Without our own frame, which is the first. To raise it again adds none.
    rockpool.trace = error.__traceback__
    while rockpool.trace is not None and rockpool.trace.tb_frame.f_globals is globals():
        rockpool.trace = rockpool.trace.tb_next
    error.__traceback__ = rockpool.trace
    if sys.excepthook is sys.__excepthook__ and not isinstance(error, KeyboardInterrupt):
        rockpool.status = 1
    if sys.version_info >= (3, 11):
        raise
    sys.last_type, sys.last_value, sys.last_traceback = type(error), error, rockpool.trace
    try:
        sys.excepthook(type(error), error, rockpool.trace)
    except SystemExit:
        raise
    except BaseException as another:
        another.__traceback__, another.__context__ = another.__traceback__.tb_next, None
        print('Error in sys.excepthook:', file=sys.stderr)
        sys.__excepthook__(type(another), another, another.__traceback__)
        print('\nOriginal exception was:', file=sys.stderr)
        sys.__excepthook__(type(error), error, rockpool.trace)
    if isinstance(error, KeyboardInterrupt):
        import signal
        sys.stdout.flush()
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        os.kill(os.getpid(), signal.SIGINT)
    raise SystemExit(1)

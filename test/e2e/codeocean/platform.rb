# Uses Rockpool as CodeOcean uses Poseidon, with the libraries and the strictness of CodeOcean: Faraday over
# net-http-persistent, faye-websocket, and frames that have exactly their fields.
#
#   ruby platform.rb SCENARIO
require "base64"
require "faraday"
require "faye/websocket"
require "json"

URL = ENV.fetch("POSEIDON_URL")
TOKEN = ENV.fetch("POSEIDON_TOKEN")
IMAGE = ENV.fetch("POSEIDON_IMAGE")

def fail!(text) = abort("#{ARGV[0]}: #{text}")

def same(what, got, want)
  fail!("#{what}: #{got.inspect}, not #{want.inspect}") unless want === got
end

class Platform
  Answer = Struct.new(:exit, :stdout, :stderr, :last, :code, :frames)

  def initialize(token = TOKEN)
    @headers = {"Content-Type" => "application/json", "Poseidon-Token" => token}
    @http = Faraday.new(headers: @headers) { |faraday| faraday.adapter :net_http_persistent }
  end

  def call(method, path, body = nil, **params)
    url = "#{URL}#{path}"
    return @http.public_send(method, url, params) if %i[get delete].include?(method)
    @http.public_send(method, url, body.is_a?(String) ? body : JSON.generate(body))
  end

  def expect(status, method, path, body = nil, **params)
    response = call(method, path, body, **params)
    same("#{method} #{path} (#{response.body})", response.status, status)
    response.body.to_s.empty? ? nil : JSON.parse(response.body)
  end

  def put(id, **changes)
    call(:put, "/execution-environments/#{id}", {id: id, image: IMAGE, prewarmingPoolSize: 2, cpuLimit: 20, memoryLimit: 128,
      networkAccess: false, exposedPorts: []}.merge(changes))
  end

  def healthy # which it isn't while a pool fills on a busy machine
    1200.times do
      return if call(:get, "/health").status == 204
      sleep 0.1
    end
    expect(204, :get, "/health")
  end

  def claim(environment) # as CodeOcean does while a pool fills: it tries again
    1200.times do
      response = call(:post, "/runners", {executionEnvironmentId: environment, inactivityTimeout: 180})
      return JSON.parse(response.body).fetch("runnerId") if response.status == 200
      same("claim", [response.status, JSON.parse(response.body)["errorCode"]], [500, "NOMAD_OVERLOAD"])
      sleep 0.25
    end
    fail!("no runner came")
  end

  def copy(runner, files)
    copies = files.map { |path, content| content ? {path: path, content: Base64.strict_encode64(content)} : {path: path} }
    expect(204, :patch, "/runners/#{runner}/files", {copy: copies, delete: ["./*"]})
  end

  def execute(runner, command, limit: 600, privileged: false, **more)
    body = {command: command, timeLimit: limit, privilegedExecution: privileged}.merge(more)
    expect(200, :post, "/runners/#{runner}/execute", body).fetch("websocketUrl")
  end

  # Follows an execution to its end. The block gets the socket and each frame.
  def follow(url)
    answer = Answer.new(nil, +"", +"", nil, nil, [])
    EM.run do
      socket = Faye::WebSocket::Client.new(url, [], headers: @headers)
      socket.on(:message) do |message|
        frame = JSON.parse(message.data)
        fail!("frame #{message.data} isn't one of the schema") unless valid?(frame)
        fail!("frame #{message.data} comes after the last") if answer.last
        answer.frames << frame
        case frame["type"]
        when "stdout" then answer.stdout << frame["data"]
        when "stderr" then answer.stderr << frame["data"]
        when "exit", "timeout", "error"
          answer.last = frame
          answer.exit = frame["data"] if frame["type"] == "exit"
        end
        yield socket, answer if block_given?
      end
      socket.on(:error) { |event| fail!("the WebSocket failed: #{event.message}") }
      socket.on(:close) do |event|
        answer.code = event.code
        EM.stop
      end
    end
    answer
  end

  def run(runner, command, **options, &block)
    answer = follow(execute(runner, command, **options), &block)
    same("close code", answer.code, 1000)
    same("first frame", answer.frames.first, {"type" => "start"})
    answer
  end

  def valid?(frame)
    case frame["type"]
    when "exit" then frame.keys == %w[type data] && frame["data"].is_a?(Integer) && frame["data"].between?(0, 255)
    when "stdout", "stderr", "error" then frame.keys == %w[type data] && frame["data"].is_a?(String)
    when "start", "timeout" then frame.keys == %w[type]
    end
  end

  def runner(environment)
    id = claim(environment)
    yield id
  ensure
    call(:delete, "/runners/#{id}") if id
  end
end

ENVIRONMENT = 17 # whose pool the test has made
platform = Platform.new

SCENARIOS = {
  "environments are synchronised" => lambda do
    platform.healthy
    same("version", JSON.parse(Platform.new("").call(:get, "/version").body), String)
    same("new", platform.put(18, prewarmingPoolSize: 1).status, 201)
    same("saved again", platform.put(18, prewarmingPoolSize: 1).status, 204)
    same("changed", platform.put(18, prewarmingPoolSize: 0).status, 204)
    list = platform.expect(200, :get, "/execution-environments", fetch: true).fetch("executionEnvironments")
    found = list.find { |environment| environment["id"] == 18 }
    same("fields", found.keys.sort, %w[cpuLimit exposedPorts id image memoryLimit networkAccess prewarmingPoolSize])
    same("image", found.values_at("image", "prewarmingPoolSize", "memoryLimit", "networkAccess", "exposedPorts"), [IMAGE, 0, 128, false, []])
    same("one", platform.expect(200, :get, "/execution-environments/18"), found)
    statistics = platform.expect(200, :get, "/statistics/execution-environments").fetch("18")
    same("statistics", statistics, {"id" => 18, "prewarmingPoolSize" => 0, "idleRunners" => Integer, "usedRunners" => 0}.merge("idleRunners" => statistics["idleRunners"]))
    platform.expect(204, :delete, "/execution-environments/18")
    platform.expect(404, :delete, "/execution-environments/18")
    platform.expect(404, :get, "/execution-environments/18")
  end,
  "whoami" => lambda do # what CodeOcean runs after it has saved an environment
    platform.runner(ENVIRONMENT) do |runner|
      answer = platform.run(runner, "whoami")
      same("exit", answer.exit, 0)
      same("user", answer.stdout, /\A\w+\r\n\z/)
      same("privileged", platform.run(runner, "whoami", privileged: true).stdout, "root\r\n")
    end
  end,
  "a megabyte" => lambda do
    platform.runner(ENVIRONMENT) do |runner|
      big = Random.new(1).bytes(1 << 20)
      platform.copy(runner, "sub/" => nil, "sub/big" => big, "main.sh" => "echo héllo\n", "empty" => "")
      same("output", platform.run(runner, "sh main.sh").stdout, "héllo\r\n")
      list = platform.expect(200, :get, "/runners/#{runner}/files", path: "./", recursive: true, privilegedExecution: false).fetch("files")
      named = list.to_h { |file| [file["name"], file] }
      same("names", named.keys.sort, %w[./empty ./main.sh ./sub ./sub/big])
      same("directory", named["./sub"].values_at("entryType", "permissions"), %w[d rwxrwxrwt])
      same("file", named["./main.sh"].values_at("entryType", "permissions", "size"), ["-", "rwxr--r--", 12])
      same("fields", named["./main.sh"].keys.sort, %w[entryType group modificationTime name owner permissions size])
      chunks = []
      length = nil
      response = Faraday.new(headers: {"Poseidon-Token" => TOKEN}) { |f| f.adapter :net_http }.get("#{URL}/runners/#{runner}/files/raw", path: "sub/big") do |request|
        request.options.on_data = proc { |chunk, _| chunks << chunk }
      end
      same("download", response.status, 200)
      same("length", response.headers["Content-Length"], big.bytesize.to_s)
      same("bytes", chunks.join.b == big.b, true)
      platform.copy(runner, "other" => "x")
      same("emptied", platform.expect(200, :get, "/runners/#{runner}/files", recursive: false).fetch("files").map { |file| file["name"] }, ["other"])
      platform.expect(424, :get, "/runners/#{runner}/files", path: "missing")
      platform.expect(424, :get, "/runners/#{runner}/files/raw", path: "missing")
    end
  end,
  "several files are scored in one runner" => lambda do
    platform.runner(ENVIRONMENT) do |runner|
      3.times do |n|
        platform.copy(runner, "exercise" => n.to_s, "test.sh" => "echo 'Ran 1 test' >&2; test $(cat exercise) -lt 2")
        answer = platform.run(runner, "sh test.sh")
        same("exit #{n}", answer.exit, n < 2 ? 0 : 1)
        same("stderr #{n}", answer.stderr, "Ran 1 test\r\n") # a test framework's adapter reads it there
        same("stdout #{n}", answer.stdout, "")
      end
    end
  end,
  "stdin" => lambda do
    platform.runner(ENVIRONMENT) do |runner|
      platform.copy(runner, "main.sh" => "printf 'Name? '; read name; echo Hello $name")
      said = false
      answer = platform.run(runner, "sh main.sh") do |socket, so_far|
        if !said && so_far.stdout.include?("Name?")
          said = true
          EM.next_tick { socket.send("Gräce\n") }
        end
      end
      same("output", answer.stdout, "Name? Gräce\r\nHello Gräce\r\n") # the terminal echoes
      same("exit", answer.exit, 0)
    end
  end,
  "the command line" => lambda do
    platform.runner(ENVIRONMENT) do |runner|
      same("quoting", platform.run(runner, %q(printf '%s|' "a b" 'c"d' \$e `echo f` "$CODEOCEAN" "$OTHER" '\\'), environment: {OTHER: "$(x) '"}).stdout,
        %q(a b|c"d|$e|f|true|$(x) '|\\|))
      same("bash", platform.run(runner, "[[ a == a ]] && source /dev/null && echo yes").stdout, "yes\r\n")
      same("directory", platform.run(runner, "pwd").stdout, "/workspace\r\n")
      same("status", platform.run(runner, "exit 37").exit, 37)
      same("killed", platform.run(runner, "kill -9 $$").exit, 137)
      same("not found", platform.run(runner, "no-such-program").exit, 127)
      same("no limit", platform.run(runner, "echo x", limit: 0).exit, 0)
      sent = false
      binary = platform.run(runner, %q(stty -echo; printf 'a\\xffb\\xf0\\x9f'; read go; printf '\\x98\\x80c')) do |socket, so_far|
        if !sent && so_far.stdout.include?("b")
          sent = true
          EM.next_tick { socket.send("\n") }
        end
      end
      same("characters", binary.stdout, "a\u{fffd}b😀c")
    end
  end,
  "time-out" => lambda do
    platform.runner(ENVIRONMENT) do |runner|
      same("last", platform.run(runner, "echo before; sleep 60", limit: 1).last, {"type" => "timeout"})
      platform.expect(204, :delete, "/runners/#{runner}")
      platform.expect(410, :delete, "/runners/#{runner}")
    end
  end,
  "out of memory" => lambda do
    platform.runner(ENVIRONMENT) do |runner|
      answer = platform.run(runner, "head -c 300000000 /dev/zero | tail -c 200000000 >/dev/null")
      same("last", answer.last, {"type" => "error", "data" => "the allocation was OOM Killed"})
    end
  end,
  "much output" => lambda do
    platform.runner(ENVIRONMENT) do |runner|
      waited = false
      lines = 1_200_000 # 10 MB, more than sockets hold
      answer = platform.run(runner, "seq #{lines}; touch done") do # a reader that takes nothing until the program has ended misses nothing
        until waited
          waited = platform.expect(200, :get, "/runners/#{runner}/files").fetch("files").any? { |file| file["name"] == "./done" }
          sleep 0.1 unless waited
        end
      end
      same("lines", answer.stdout == (1..lines).map { |n| "#{n}\r\n" }.join, true)
    end
  end,
  "a client that leaves ends its program" => lambda do
    platform.runner(ENVIRONMENT) do |runner|
      [["trap 'touch quit; exit' QUIT; echo ready; while :; do sleep 0.1; done", 200], ["trap '' QUIT; echo ready; while :; do sleep 0.1; done", 410]].each do |command, status|
        platform.follow(platform.execute(runner, command)) { |socket, answer| socket.close if answer.stdout.include?("ready") }
        got = nil
        1200.times do
          response = platform.call(:get, "/runners/#{runner}/files")
          got = response.status
          break if got == status && (got == 410 || response.body.include?("./quit"))
          sleep 0.1
        end
        same("the runner after #{command}", got, status)
      end
    end
  end,
  "paths" => lambda do
    platform.runner(ENVIRONMENT) do |runner|
      names = ["a b", "-rf", "$(touch x)", "'\"\\", "ä\n😀", "sub/../other", "deep/er/file"]
      platform.copy(runner, {".cache/x" => "hidden", ".x" => "hidden", "deep/.x" => "hidden"}.merge(names.to_h { |name| [name, name] }))
      listed = platform.expect(200, :get, "/runners/#{runner}/files", recursive: false).fetch("files").map { |file| file["name"] }
      same("names", listed.sort, ["a b", "-rf", "$(touch x)", "'\"\\", "ä\n😀", "other", "deep"].sort)
      (names - ["sub/../other"] + ["other"]).each { |name| same(name, platform.call(:get, "/runners/#{runner}/files/raw", path: name).body.b, name == "other" ? "sub/../other" : name.b) }
      platform.run(runner, "ln -s /etc/passwd link; mkfifo pipe; mkdir dir; ln -s loop loop")
      same("kinds", platform.expect(200, :get, "/runners/#{runner}/files", recursive: false).fetch("files").to_h { |f| f.values_at("name", "entryType") }.values_at("link", "pipe", "dir"), %w[l p d])
      same("target", platform.expect(200, :get, "/runners/#{runner}/files").fetch("files").find { |f| f["name"] == "./link" }["linkTarget"], "/etc/passwd")
      same("below", platform.expect(200, :get, "/runners/#{runner}/files", path: "deep/").fetch("files").map { |f| f["name"] }, %w[deep/er deep/er/file])
      same("in a hidden one", platform.expect(200, :get, "/runners/#{runner}/files", path: ".cache").fetch("files").map { |f| f["name"] }, %w[.cache/x])
      same("one file", platform.expect(200, :get, "/runners/#{runner}/files", path: "deep/er/file").fetch("files").map { |f| f.values_at("name", "entryType") }, [["deep/er/file", "-"]])
      ["pipe", "dir", "loop", "../../../../no/such", "x" * 5000, ""].each { |path| platform.expect(424, :get, "/runners/#{runner}/files/raw", path: path) }
      ["no/such", "x" * 300, "a\0b"].each { |path| platform.expect(424, :get, "/runners/#{runner}/files", path: path) }
      above = platform.run(runner, "ls -1 /").stdout.gsub("\r", "")
      same("above", platform.expect(200, :get, "/runners/#{runner}/files", path: "../../..", recursive: false).fetch("files").map { |f| f["name"] } - above.split("\n"), [])
      platform.expect(204, :patch, "/runners/#{runner}/files", {copy: [{path: "../../tmp/outside", content: "eA=="}]})
      same("outside", platform.run(runner, "cat /tmp/outside").stdout, "x")
      ["/", "..", "/workspace/.."].each { |path| platform.expect(400, :patch, "/runners/#{runner}/files", {delete: [path]}) }
      ["/etc/passwd", "../etc/new", "/proc/1/comm"].each do |path|
        response = platform.call(:patch, "/runners/#{runner}/files", {copy: [{path: path, content: "eA=="}]})
        same("#{path} #{response.body}", response.status, 500)
      end
    end
  end,
  "errors" => lambda do
    platform.runner(ENVIRONMENT) do |runner|
      files, execute = "/runners/#{runner}/files", "/runners/#{runner}/execute"
      [[:patch, files], [:post, execute], [:post, "/runners"], [:put, "/execution-environments/#{ENVIRONMENT}"]].each do |method, path|
        ["{", "[]", "no"].each { |body| same("message", platform.expect(400, method, path, body).keys, ["message"]) }
      end
      platform.expect(400, :patch, files, {copy: [{path: "x", content: "no base64!"}]})
      platform.expect(400, :put, "/execution-environments/x", {})
      platform.expect(400, :put, "/execution-environments/#{ENVIRONMENT}", {image: IMAGE, memoryLimit: 3})
      platform.expect(400, :post, execute, {command: "true", timeLimit: -1})
      platform.expect(400, :get, "/execution-environments", fetch: "maybe")
      platform.expect(404, :post, "/runners", {executionEnvironmentId: 987, inactivityTimeout: 1})
      gone = "/runners/00000000-0000-7000-8000-000000000000"
      [[:get, "/files"], [:get, "/files/raw"], [:delete, ""]].each { |method, path| platform.expect(410, method, gone + path) }
      big = {copy: [{path: "big", content: Base64.strict_encode64("x" * (1 << 20))}], delete: ["./*"]}
      same("message", platform.expect(410, :patch, gone + "/files", big).keys, ["message"]) # its body was read before
      platform.expect(410, :post, gone + "/execute", {command: "true"})
      ["", "a wrong token of some length"].each do |token|
        response = Platform.new(token).call(:get, "/execution-environments")
        same("no token", [response.status, response.body.to_s], [401, ""])
      end
      url = platform.execute(runner, "true")
      platform.follow(url)
      same("used twice", Faraday.get(url.sub("ws", "http"), nil, {"Poseidon-Token" => TOKEN, "Upgrade" => "websocket", "Connection" => "Upgrade"}).status, 404)
    end
  end
}

SCENARIOS.fetch(ARGV.fetch(0)).call
puts "ok"

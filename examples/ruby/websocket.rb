# Runs a Python program on Rockpool, and follows it over a WebSocket with
# faye-websocket, as CodeOcean does. It reconnects when the connection breaks:
#   printf 'Ada\nGrace\n' | ruby examples/ruby/websocket.rb examples/hello.py
require "faye/websocket"
require "json"
require "net/http"

API = URI("#{ENV.fetch("ROCKPOOL_SERVER", "http://127.0.0.1:8080")}/graphql")
FOLLOW = "subscription($id: ID!, $after: Cursor) { executionEvents(executionId: $id, after: $after) { cursor
  ... on ExecutionOutput { stream base64 } ... on ExecutionFinished { execution { outcome exitCode } } } }"

def ask(query, variables)
  answer = JSON.parse(Net::HTTP.post(API, JSON.generate(query: query, variables: variables), "Content-Type" => "application/json").body)
  answer["errors"]&.each { |e| raise "#{e["extensions"]["code"]}: #{e["message"]}" }
  answer["data"]
end

def mutate(name, fields, **input) =
  ask("mutation($in: #{name[0].upcase}#{name[1..]}Input!) { #{name}(input: $in) { #{fields} } }", {in: input})[name]

def feed(id, bytes)
  mutate("writeStdin", "offset", executionId: id, base64: [bytes].pack("m0"), close: true)
rescue RuntimeError => error
  raise unless error.message.start_with?("CONFLICT") # the program may end without reading its input
end

def follow(id, after = nil, &block) # calls the block with each event once: after a broken connection it resumes
  socket = Faye::WebSocket::Client.new(API.to_s.sub("http", "ws"), ["graphql-transport-ws"])
  say = ->(message) { socket.send(JSON.generate(message)) }
  socket.on(:open) { say.(type: "connection_init") }
  socket.on(:message) do |frame|
    type, payload = JSON.parse(frame.data).values_at("type", "payload")
    error = type == "error" ? payload.first : payload&.dig("errors", 0)
    next error["extensions"]["retryable"] ? socket.close : raise(error["message"]) if error
    say.(type: "pong") if type == "ping"
    say.(id: "1", type: "subscribe", payload: {query: FOLLOW, variables: {id: id, after: after}}) if type == "connection_ack"
    block.(payload["data"]["executionEvents"].tap { |event| after = event["cursor"] }) if type == "next"
  end
  socket.on(:close) { |close| close.code >= 4000 ? raise(close.reason) : EM.add_timer(0.5) { follow(id, after, &block) } }
end

runner = mutate("claimRunner", "runner { id }", environmentId: "python", waitFor: 20, inactivityTimeout: 60)["runner"]["id"]
begin
  mutate("updateFiles", "written", runnerId: runner, write: [{path: "main.py", base64: [File.binread(ARGV[0])].pack("m0")}])
  id = mutate("startExecution", "execution { id }", runnerId: runner, command: %w[python3 main.py], stdin: true)["execution"]["id"]
  feed(id, $stdin.binmode.read)
  ended = nil
  EM.run do
    follow(id) do |event|
      (event["stream"] == "STDERR" ? $stderr : $stdout).write(event["base64"].unpack1("m")) if event["stream"]
      EM.stop if (ended = event["execution"])
    end
  end
ensure
  ask("mutation($id: ID!) { releaseRunner(id: $id) { released } }", {id: runner})
end
warn "#{ended["outcome"]}, exit code #{ended["exitCode"]}"
exit ended["exitCode"] || 1

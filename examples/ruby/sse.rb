# Runs a Python program on Rockpool with Ruby's standard library alone, and
# follows it by server-sent events. It reconnects when the connection breaks:
#   printf 'Ada\nGrace\n' | ruby examples/ruby/sse.rb examples/hello.py
require "json"
require "net/http"

API = URI("#{ENV.fetch("ROCKPOOL_SERVER", "http://127.0.0.1:8080")}/graphql")
FOLLOW = "subscription($id: ID!, $after: Cursor) { executionEvents(executionId: $id, after: $after) { cursor
  ... on ExecutionOutput { stream base64 } ... on ExecutionFinished { execution { outcome exitCode } } } }"

def post(query, variables, accept = "application/json", &block)
  request = Net::HTTP::Post.new(API, "Content-Type" => "application/json", "Accept" => accept)
  request.body = JSON.generate(query: query, variables: variables) # below: the server sends a comment every 12 s if there are no events
  Net::HTTP.start(API.host, API.port, read_timeout: 30) { |http| http.request(request, &block) }
end

def data(json)
  answer = JSON.parse(json) # retryable errors are handled like a broken connection
  answer["errors"]&.each { |e| raise e["extensions"]["retryable"] ? IOError : RuntimeError, "#{e["extensions"]["code"]}: #{e["message"]}" }
  answer["data"]
end

def mutate(name, fields, **input) =
  data(post("mutation($in: #{name[0].upcase}#{name[1..]}Input!) { #{name}(input: $in) { #{fields} } }", {in: input}).body)[name]

def follow(id, after = nil) # yields each event once: after a broken connection it resumes after the last
  buffer = +""
  post(FOLLOW, {id: id, after: after}, "text/event-stream") do |response|
    response.read_body do |bytes|
      (buffer << bytes).slice!(/.*\n/m)&.scan(/^data: (.+)$/) do |(json)|
        event = data(json)["executionEvents"]
        after = event["cursor"]
        event["execution"] ? (return event["execution"]) : yield(event)
      end
    end
  end
  raise EOFError # before the last event
rescue SystemCallError, IOError, Timeout::Error, Net::HTTPBadResponse
  sleep 0.5
  retry
end

def feed(id, bytes)
  mutate("writeStdin", "offset", executionId: id, base64: [bytes].pack("m0"), close: true)
rescue RuntimeError => error
  raise unless error.message.start_with?("CONFLICT") # the program may end without reading its input
end

runner = mutate("claimRunner", "runner { id }", environmentId: "python", waitFor: 20, inactivityTimeout: 60)["runner"]["id"]
begin
  mutate("updateFiles", "written", runnerId: runner, write: [{path: "main.py", base64: [File.binread(ARGV[0])].pack("m0")}])
  id = mutate("startExecution", "execution { id }", runnerId: runner, command: %w[python3 main.py], stdin: true)["execution"]["id"]
  feed(id, $stdin.binmode.read)
  ended = follow(id) { |e| (e["stream"] == "STDERR" ? $stderr : $stdout).write(e["base64"].unpack1("m")) if e["stream"] }
ensure
  post("mutation($id: ID!) { releaseRunner(id: $id) { released } }", {id: runner})
end
warn "#{ended["outcome"]}, exit code #{ended["exitCode"]}"
exit ended["exitCode"] || 1

# Runs a Python program on Rockpool with Poseidon's API, as CodeOcean does: with Faraday and faye-websocket.
#   rockpool serve --compat poseidon
#   printf 'Ada\nGrace\n' | ruby examples/ruby/codeocean.rb examples/hello.py
require "faraday"
require "faye/websocket"
require "json"

API = "#{ENV.fetch("ROCKPOOL_SERVER", "http://127.0.0.1:8080")}/api/v1"
HEADERS = {"Content-Type" => "application/json", "Poseidon-Token" => ENV.fetch("ROCKPOOL_TOKEN", "")}
HTTP = Faraday.new(headers: HEADERS) { |faraday| faraday.adapter :net_http_persistent }

def ask(method, path, body = nil)
  answer = HTTP.public_send(method, API + path, body && JSON.generate(body))
  raise "#{method} #{path}: #{answer.status} #{answer.body}" unless answer.success?
  JSON.parse(answer.body) unless answer.body.to_s.empty?
end

def claim(environment) # a new pool needs a moment
  ask(:post, "/runners", executionEnvironmentId: environment, inactivityTimeout: 60)["runnerId"]
rescue RuntimeError => error
  raise unless error.message.include?("NOMAD_OVERLOAD")
  sleep 0.2
  retry
end

ask(:put, "/execution-environments/10", image: "host", prewarmingPoolSize: 1, cpuLimit: 2000, memoryLimit: 256, networkAccess: false, exposedPorts: [])
runner = claim(10)
last = nil
begin
  ask(:patch, "/runners/#{runner}/files", delete: ["./*"], copy: [{path: "main.py", content: [File.binread(ARGV[0])].pack("m0")}])
  url = ask(:post, "/runners/#{runner}/execute", command: "python3 main.py", timeLimit: 60)["websocketUrl"]
  input = $stdin.each_line.to_a
  EM.run do
    socket = Faye::WebSocket::Client.new(url, [], headers: HEADERS)
    socket.on(:message) do |message|
      frame = JSON.parse(message.data)
      case frame["type"]
      when "start" then [*input, "\u0004"].each { |line| socket.send(line) } # Ctrl-D ends the input
      when "stdout", "stderr" then (frame["type"] == "stderr" ? $stderr : $stdout).write(frame["data"])
      else last = frame
      end
    end
    socket.on(:close) { EM.stop }
  end
ensure
  ask(:delete, "/runners/#{runner}")
end
warn last.to_json
exit last["type"] == "exit" ? last["data"] : 1

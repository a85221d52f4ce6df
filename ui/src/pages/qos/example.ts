// A policy to begin with.

export const EXAMPLE = `# Alarms share one link with a backup. Will the alarms arrive in time?

[bottleneck]
interface = "eth0"
capacity = "50Mbit/s"            # or "estimate"

[[class]]
name = "alarm"
match = { process = "alarmd" }
priority = 1                     # 1 is the most urgent
target = "500ms"                 # response time of one message
size = "250kB"
clients = 3                      # may send at the same time
overhead = "20ms"                # round trip and time in the server

[[class]]
name = "backup"
match = { process = "rsync" }
priority = 5
floor = "2Mbit/s"
ceiling = "20Mbit/s"
`;

import { request, ServerError } from "../../lib/request";
import { follow } from "../../lib/follow";
import { graphql } from "../../lib/graphql";
import { hold, lease } from "../../lib/lease";
import { filesOf } from "./calls";
import { feed } from "./feed";
import { commandOf, shownOf } from "./program";
import type { Calls } from "./run";

const ClaimMutation = graphql(`
  mutation PlaygroundClaim($input: ClaimRunnerInput!) {
    claimRunner(input: $input) {
      runner {
        id
      }
      ticket {
        id
        position
        estimatedWaitMs
      }
    }
  }
`);

const TicketSubscription = graphql(`
  subscription PlaygroundTicket($id: ID!) {
    ticketEvents(id: $id) {
      state
      position
      estimatedWaitMs
      runner {
        id
      }
      code
      message
    }
  }
`);

const LeaveMutation = graphql(`
  mutation PlaygroundLeave($id: ID!) {
    cancelTicket(id: $id) {
      ticket {
        runner {
          id
        }
      }
    }
  }
`);

const WriteMutation = graphql(`
  mutation PlaygroundWrite($input: UpdateFilesInput!) {
    updateFiles(input: $input) {
      failed {
        path
        message
      }
    }
  }
`);

const StartMutation = graphql(`
  mutation PlaygroundStart($input: StartExecutionInput!) {
    startExecution(input: $input) {
      execution {
        id
      }
    }
  }
`);

const FeedMutation = graphql(`
  mutation PlaygroundFeed($input: WriteStdinInput!) {
    writeStdin(input: $input) {
      offset
    }
  }
`);

const CancelMutation = graphql(`
  mutation PlaygroundCancel($id: ID!) {
    cancelExecution(id: $id) {
      execution {
        id
      }
    }
  }
`);

const EndQuery = graphql(`
  query PlaygroundEnd($id: ID!) {
    execution(id: $id, waitFor: 30) {
      state
    }
  }
`);

const ReleaseMutation = graphql(`
  mutation PlaygroundRelease($id: ID!) {
    releaseRunner(id: $id) {
      released
    }
  }
`);

/** spare is the runner's inactivity timeout in seconds, for pages closed before they release it. */
const spare = 60;

/** server implements the requests of a run. */
export const server: Calls = {
  async claim(environmentId) {
    const labels = [{ name: "by", value: "playground" }];
    const { runner, ticket } = (await request(ClaimMutation, { input: { environmentId, inactivityTimeout: spare, labels, wait: "TICKET" } })).claimRunner;
    return { runnerId: runner?.id, ticket: ticket ?? undefined };
  },
  watch(ticketId, on) {
    return follow(TicketSubscription, {
      variables: () => ({ id: ticketId }),
      next: ({ ticketEvents: ticket }) => {
        if (ticket.state === "WAITING") on.turn(ticket);
        else if (ticket.state === "CLAIMED" && ticket.runner) on.claimed(ticket.runner.id);
        else on.failed(new ServerError(ticket.message ?? "the claim ended without a runner", ticket.code ?? ""));
      },
      failed: on.failed,
    });
  },
  async leave(ticketId) {
    return (await request(LeaveMutation, { id: ticketId })).cancelTicket.ticket.runner?.id;
  },
  async write(runnerId, program) {
    const [failed] = (await request(WriteMutation, { input: { runnerId, write: filesOf(program) } })).updateFiles.failed;
    if (failed) throw new ServerError(`${failed.path}: ${failed.message}`);
  },
  async start(runnerId, program) {
    const input = { runnerId, command: commandOf(program), commandLine: shownOf(program), workingDirectory: "/workspace", stdin: program.stdin !== "", lease };
    const { id } = (await request(StartMutation, { input })).startExecution.execution;
    hold(id);
    return id;
  },
  feed: (executionId, { stdin }) => feed(stdin, async (input) => (await request(FeedMutation, { input: { executionId, ...input } })).writeStdin.offset),
  async cancel(executionId) {
    await request(CancelMutation, { id: executionId });
  },
  async ended(executionId) {
    await request(EndQuery, { id: executionId });
  },
  async release(runnerId) {
    await request(ReleaseMutation, { id: runnerId });
  },
};

// Setup of all unit tests: a long limit for waiting, which only ends hanging tests. A busy machine needs over a second.
import { configure } from "@testing-library/dom";

configure({ asyncUtilTimeout: 100_000 });

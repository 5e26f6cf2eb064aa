// For all unit tests. A busy machine takes longer than a second: this only ends a test that would hang.
import { configure } from "@testing-library/dom";

configure({ asyncUtilTimeout: 100_000 });

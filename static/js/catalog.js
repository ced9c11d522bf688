/** The home and model pages: code to copy, in tabs. */
import "./copy-code.js";
import "./tabs.js";

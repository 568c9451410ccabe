// streams read FILE: copies FILE to standard output; streams write FILE: standard input to FILE. Through iostream.
#include <fstream>
#include <iostream>
#include <string>

int main(int argc, char **argv) {
    if (argc != 3) return 2;
    bool reads = argv[1] == std::string("read");
    std::ifstream in;
    std::ofstream out;
    if (reads) in.open(argv[2]);
    else out.open(argv[2]);
    if (reads ? !in : !out) {
        std::cerr << "cannot open " << argv[2] << '\n';
        return 1;
    }
    std::string line;
    while (std::getline(reads ? in : std::cin, line)) (reads ? std::cout : out) << line << '\n';
    return 0;
}
